"""Troves with their pages: one with something of everything, a hostile one, one of an example."""

import fcntl
import os
import re
import subprocess
import sys

import pytest

from browsers import opened_browser
from examples_trove import make_examples_trove
from optrove.trove.place import place_of
from web_trove import make_hostile_trove, make_web_trove

SERVE = "import sys; from optrove.cli.ask import serve; serve(sys.argv[1:])"


@pytest.fixture(scope="session")
def web_trove(tmp_path_factory):
    return make_web_trove(tmp_path_factory.mktemp("web"))


@pytest.fixture(scope="session")
def hostile_trove(tmp_path_factory):
    return make_hostile_trove(tmp_path_factory.mktemp("hostile"))


def opened(path):
    """Return the site of a trove."""
    from optrove.web.answering import TroveSite

    return TroveSite(place_of(str(path)), "web.db")


@pytest.fixture(scope="session")
def site(web_trove):
    site = opened(web_trove)
    yield site
    site.close()


@pytest.fixture(scope="session")
def hostile_site(hostile_trove):
    site = opened(hostile_trove)
    yield site
    site.close()


@pytest.fixture(scope="module")
def browser():
    """A browser; not longer than needed, for its driver keeps an event loop running."""
    with opened_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def examples_trove(browser, tmp_path_factory):
    """A trove that an example has made; none is made where no browser would look at it.

    The workers of pytest-xdist share one: it takes longer to make than all else here.
    """
    base = tmp_path_factory.getbasetemp()
    directory = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "examples"
    directory.mkdir(exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "done").exists():
            make_examples_trove(directory)
            (directory / "done").touch()
    return directory / "trove.db"


@pytest.fixture(scope="module")
def url(examples_trove):
    """The address of the pages over the trove of an example, served by a process of its own."""
    command = [sys.executable, "-c", SERVE, "--store", examples_trove.name, "--port", "0"]
    with subprocess.Popen(
        command, cwd=examples_trove.parent, stderr=subprocess.PIPE, text=True
    ) as server:
        yield re.search(r"http\S+(?=/)", server.stderr.readline()).group()
        server.terminate()
        server.communicate(timeout=60)
