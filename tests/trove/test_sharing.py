"""What one trove lacks of another is sent, between SQLite and PostgreSQL in any combination."""

import json
import subprocess
import sys
from dataclasses import replace

import psycopg
import pytest

import sending
from executed_runs import NEW, SWEEP, make_executed
from optrove.cli.main import main
from optrove.errors import UnusableTrove
from optrove.trove.merging import TroveParts
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.scrubbing import Names, ScrubbedParts, Scrubber
from optrove.trove.sharing import grants, send, total_of
from optrove.trove.trove import open_trove
from traced_runs import TRACED, add_traced
from trove_rows import case, tensor
from troves import content_of, imported


def add_many(place, count):
    with open_trove(place, create=True) as trove:
        for number in range(count):
            cases = [case("ttnn.add", a=tensor(32, 32), b=number * 7 + each) for each in range(20)]
            trove.add_imported(imported(f"run-{number:03}", *cases))


def sent(source, target, most=1_000_000):
    with open_reader(source) as reader, open_trove(target, create=True) as trove:
        parts = TroveParts(reader.connection)
        return list(send(trove, parts, trove.missing_parts(parts), most))


@pytest.fixture
def full(tmp_path):
    """A trove with everything that a trove can hold."""
    place = place_of(str(make_executed(tmp_path / "full.db")))
    add_traced(place, tmp_path)
    return place


def test_what_is_lacking_is_sent_once_and_the_troves_are_equal_then(full, place):
    with open_reader(full) as reader, open_trove(place, create=True) as trove:
        parts = TroveParts(reader.connection)
        missing = trove.missing_parts(parts)
        total = total_of(missing)
        (*_, last) = send(trove, parts, missing)
        assert trove.missing_parts(parts) == ()
    assert replace(last, cases_new=0, cases_known=0) == total
    assert (last.runs, last.attempts) == (5, 20)
    assert last.cases_new == len(content_of(full)["cases"])
    assert content_of(place) == content_of(full)
    assert sent(full, place) == []


def test_push_and_pull_make_two_troves_equal(full, place, tmp_path):
    add_many(place, 3)
    sent(full, place, most=1)
    sent(place, full, most=1)
    assert content_of(full) == content_of(place)
    assert {"run-000", TRACED} <= {row[0] for row in content_of(full)["runs"]}


def test_a_run_that_has_not_arrived_wholly_is_not_said_to_have_ended(full, place):
    with open_reader(full) as reader, open_trove(place, create=True) as trove:
        parts = TroveParts(reader.connection)
        (traced,) = [each for each in trove.missing_parts(parts) if each.run.run_id == TRACED]
        sending_on = send(trove, parts, [traced], most=1)
        next(sending_on)
        with trove.reader() as other:
            (row,) = other.runs(TRACED)
            assert row.run.finished_at is None
            assert row.calls == 6
        list(sending_on)
    with open_reader(place) as other, open_reader(full) as one:
        assert other.runs(TRACED) == one.runs(TRACED)
        assert other.runs(TRACED)[0].run.finished_at is not None


def test_a_sweep_that_went_on_meanwhile_is_sent_by_its_attempts(full, place):
    with open_trove(full, create=False) as trove, trove.reader() as reader:
        sent(full, place)
        (run,) = [row.run for row in reader.runs(SWEEP)]
        (left,) = {each.case_id for each in reader.planned(SWEEP)} - reader.attempted(SWEEP)
        (known, *_) = reader.attempts(SWEEP)
        trove.add_attempts(run, [replace(known, case_id=left)])
    (last,) = sent(full, place)
    assert (last.runs, last.recordings, last.attempts, last.cases_new) == (1, 0, 1, 0)
    assert content_of(place) == content_of(full)


@pytest.mark.slow
def test_whenever_the_sender_is_killed_the_rest_is_sent_later(server, full, tmp_path):
    add_many(full, 25)
    url, back = server.new_schema(), str(tmp_path / "back.db")
    for source, target in ((str(full.path), url), (url, back)):
        command = [sys.executable, sending.__file__, source, target, "8", "20260704"]
        answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        assert answer["killed"] > 3
        assert set(answer["runs"]) - {0, 30}
        assert content_of(place_of(target)) == content_of(place_of(source))


def test_roles_let_a_reader_only_read_and_a_writer_drop_nothing(server, full, tmp_path, capsys):
    url = server.new_schema()
    sent(full, place_of(url))
    with open_trove(place_of(url), create=False) as trove:
        trove.make_views()
    with psycopg.connect(url) as connection:
        (schema,) = connection.execute("SELECT current_schema()").fetchone()
        names = [f"{schema}-reader", f"{schema}_writer"]
        for _ in range(2):
            connection.execute(grants(*names))
        for name in names:
            connection.execute(f'ALTER ROLE "{name}" LOGIN')
    reader, writer = (url.replace("optrove@", f"{name}@") for name in names)
    add_many(full, 1)
    with pytest.raises(UnusableTrove, match=r"may not do that .*permission denied"):
        sent(full, place_of(reader))
    with pytest.raises(SystemExit) as ended:
        main(["push", reader, "--store", str(full.path)])
    assert ended.value.code == 2
    assert "ask for the rights (optrove roles)" in capsys.readouterr().err
    sent(full, place_of(writer))
    here = place_of(str(tmp_path / "here.db"))
    sent(place_of(reader), here)
    assert content_of(here) == content_of(full)
    with psycopg.connect(reader) as connection:
        assert connection.execute("SELECT count(*) FROM v_runs").fetchone() == (6,)
    for statement in ("DROP TABLE planned", "ALTER TABLE runs ADD x INT", "DELETE FROM trove"):
        with (
            psycopg.connect(writer) as connection,
            pytest.raises(psycopg.errors.InsufficientPrivilege),
        ):
            connection.execute(statement)
    with open_trove(place_of(writer), create=False) as trove:
        assert trove.remove_run("run-000").runs == 1


def test_a_scrubbed_trove_is_sent_and_a_whole_one_takes_its_place(full, place):
    scrubber = Scrubber(Names(hosts=frozenset({"lab-7"})))
    with open_reader(full) as reader, open_trove(place, create=True) as trove:
        parts = ScrubbedParts(reader.connection, scrubber)
        for _ in range(2):
            list(send(trove, parts, trove.missing_parts(parts), most=1))
        assert trove.missing_parts(parts) == ()
        with trove.reader() as other:
            assert len(list(other.calls(TRACED))) == len(list(reader.calls(TRACED)))
            assert {row.run.environment.host for row in other.runs()} == {None}
            assert len(list(other.attempts(NEW))) == len(list(reader.attempts(NEW))) == 8
    sent(full, place)
    assert content_of(place)["recordings"] == content_of(full)["recordings"]
    assert content_of(place)["executions"] == content_of(full)["executions"]
