"""A trove with something of everything, and a hostile one, each with its pages."""

import pytest

from optrove.store.place import place_of
from web_trove import make_hostile_trove, make_web_trove

pytest.importorskip("starlette", reason="the pages need optrove[web]")


@pytest.fixture(scope="session")
def web_trove(tmp_path_factory):
    return make_web_trove(tmp_path_factory.mktemp("web"))


@pytest.fixture(scope="session")
def hostile_trove(tmp_path_factory):
    return make_hostile_trove(tmp_path_factory.mktemp("hostile"))


def opened(path):
    """Return whoever answers for a trove."""
    from optrove.web.answering import Desk

    return Desk(place_of(str(path)), "web.db")


@pytest.fixture(scope="session")
def desk(web_trove):
    desk = opened(web_trove)
    yield desk
    desk.close()


@pytest.fixture(scope="session")
def hostile_desk(hostile_trove):
    desk = opened(hostile_trove)
    yield desk
    desk.close()
