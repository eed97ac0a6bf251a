"""Troves of older versions are brought up to date, all at once or not at all."""

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import inspect

from optrove.errors import NewerTrove, UnusableTrove
from optrove.model.records import Query
from optrove.trove import schema
from optrove.trove.migrations import MIGRATIONS, TABLES, Migrations, Step
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.trove import open_trove
from trove_rows import case, tensor
from troves import content_of, imported

ADD = case("ttnn.add", a=tensor(32, 32), b=1.5)
NEXT = MIGRATIONS.current + 1
STEP = Step(
    NEXT,
    (
        "ALTER TABLE cases ADD COLUMN remark TEXT",
        "UPDATE cases SET remark = op",
        "CREATE INDEX ix_cases_remark ON cases (remark)",
    ),
)
LATER = Migrations((*MIGRATIONS.steps, STEP))
BROKEN = Migrations((*LATER.steps, Step(NEXT + 1, ("UPDATE cases SET nonsense = 1",))))


@pytest.fixture
def old(place):
    """A trove of the version before."""
    with open_trove(place, create=True) as trove:
        trove.add_imported(imported("first", ADD))
    return place


def version_of(place, migrations):
    with open_reader(place, migrations=migrations) as reader:
        ((version,),) = reader.source.rows("SELECT value FROM trove WHERE name = 'version'", {})
        return version


def remarks(place, migrations):
    with open_reader(place, migrations=migrations) as reader:
        return [remark for (remark,) in reader.source.rows("SELECT remark FROM cases", {})]


def test_an_older_trove_is_brought_up_to_date_when_it_is_opened_for_writing(old):
    before = content_of(old)
    open_trove(old, create=False, migrations=LATER).close()
    assert version_of(old, LATER) == str(NEXT)
    assert remarks(old, LATER) == ["ttnn.add"]
    with pytest.raises(NewerTrove):
        open_trove(old, create=False)
    with open_reader(old, migrations=LATER) as reader:
        assert reader.count(Query()) == len(before["cases"])


def test_an_older_trove_is_brought_up_to_date_when_it_is_opened_for_reading(old):
    assert remarks(old, LATER) == ["ttnn.add"]


def test_a_new_trove_goes_through_the_same_steps(place):
    open_trove(place, create=True, migrations=LATER).close()
    assert version_of(place, LATER) == str(NEXT)
    assert remarks(place, LATER) == []


def test_a_step_that_fails_leaves_the_trove_as_it_was(old):
    before = content_of(old)
    with pytest.raises(UnusableTrove):
        open_trove(old, create=False, migrations=BROKEN)
    assert version_of(old, MIGRATIONS) == str(MIGRATIONS.current)
    assert content_of(old) == before


def test_an_older_trove_that_is_locked_is_told(tmp_path):
    place = place_of(str(tmp_path / "trove.db"))
    open_trove(place, create=True).close()
    holder = sqlite3.connect(place.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(UnusableTrove, match="another process is writing"):
            open_trove(place, create=False, migrations=LATER, timeout_s=0.1)
    finally:
        holder.close()


def test_a_reader_that_may_not_bring_a_trove_up_to_date_is_told(server):
    place = place_of(server.new_schema())
    open_trove(place, create=True).close()
    guest = place_of(server.as_guest(place.url))
    told = f"has to be brought to version {NEXT} before it can be read"
    with pytest.raises(UnusableTrove, match=told):
        open_reader(guest, migrations=LATER)
    open_reader(guest).close()


def test_steps_have_to_be_numbered_without_gaps():
    with pytest.raises(ValueError, match="versions"):
        Migrations((Step(3, ()),))
    with pytest.raises(ValueError, match="versions"):
        Migrations((*MIGRATIONS.steps, *MIGRATIONS.steps))


def test_there_is_a_golden_trove_of_every_version():
    golden = Path(__file__).parents[1] / "golden"
    versions = range(1, MIGRATIONS.current + 1)
    assert sorted(path.name for path in golden.glob("trove-*.sql")) == [
        f"trove-{version}.sql" for version in versions
    ]
    assert MIGRATIONS.current == schema.VERSION


def test_every_table_and_column_says_what_it_is_for():
    tables = schema.METADATA.tables
    assert set(tables) == TABLES
    assert all(table.comment for table in tables.values())
    bare = [column for table in tables.values() for column in table.columns if not column.comment]
    assert not bare


def test_a_server_tells_the_comments_too(server):
    place = place_of(server.new_schema())
    open_trove(place, create=True).close()
    asked = "SELECT obj_description(to_regclass(:name)), col_description(to_regclass(:name), 2)"
    with open_reader(place) as reader:
        ((table, column),) = reader.source.rows(asked, {"name": "cases"})
    assert table == "Operations with their arguments, each once"
    assert column == "placement hash"


FIRST_VERSION = {
    "config_calls": ("DROP TABLE config_calls",),
    "planned": ("DROP TABLE planned",),
    "sweeps": ("DROP TABLE sweeps",),
    "attempts": (
        "ALTER TABLE attempts DROP COLUMN notes",
        "DROP INDEX ix_attempts_run",
        "CREATE INDEX ix_attempts_run ON attempts (run_key)",
        "DROP INDEX ix_attempts_case",
        "CREATE INDEX ix_attempts_case ON attempts (case_key)",
    ),
    "runs": ("DROP INDEX ix_runs_started",),
    "trove": ("UPDATE trove SET value = '1' WHERE name = 'version'",),
}
"""What leads back from the current version to the first, table by table."""


def test_a_trove_that_was_brought_up_to_date_has_the_tables_of_a_new_one(new_place):
    old, new = new_place(), new_place()
    with open_trove(old, create=True) as trove:
        trove.add_imported(imported("first", ADD))
        with trove.together():
            for statement in (each for table in FIRST_VERSION.values() for each in table):
                trove._connection.exec_driver_sql(statement)
    assert tables_of(old) == tables_of(new)
    assert version_of(old, MIGRATIONS) == str(schema.VERSION)


def tables_of(place):
    """Return what the database of a trove itself says of its tables."""
    with open_trove(place, create=True) as trove:
        return described(inspect(trove._connection))


def described(found):
    return {
        table: (
            sorted(
                (each["name"], str(each["type"]), each["nullable"], each.get("comment"))
                for each in found.get_columns(table)
            ),
            found.get_pk_constraint(table)["constrained_columns"],
            sorted(
                (each["constrained_columns"], each["referred_table"], str(each["options"]))
                for each in found.get_foreign_keys(table)
            ),
            sorted((each["name"] or "", each["column_names"]) for each in found.get_indexes(table)),
            sorted(each["column_names"] for each in found.get_unique_constraints(table)),
        )
        for table in found.get_table_names()
    }
