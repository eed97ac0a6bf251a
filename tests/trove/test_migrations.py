"""Troves of older versions are migrated, all at once or not at all."""

import sqlite3
from contextlib import contextmanager
from pathlib import Path

import pytest

from optrove.errors import NewerTrove, UnusableTrove
from optrove.model.records import Query
from optrove.trove import schema
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.trove import open_trove
from trove_rows import case, tensor
from troves import content_of, derived_of, imported

ADD = case("ttnn.add", a=tensor(32, 32), b=1.5)
NEXT = schema.VERSION + 1
REMARKS = """
ALTER TABLE cases ADD COLUMN remark TEXT;
UPDATE cases SET remark = op;
CREATE INDEX ix_cases_remark ON cases (remark);
"""
BROKEN = REMARKS.replace("SET remark", "SET nonsense")


@pytest.fixture
def later(monkeypatch):
    """Return a function that makes an optrove of the next version, with its migration."""

    @contextmanager
    def optrove_with(script):
        with monkeypatch.context() as patch:
            patch.setattr(schema, "VERSION", NEXT)
            patch.setattr(schema, "migration", {NEXT: script}.__getitem__)
            yield

    return optrove_with


@pytest.fixture
def old(place):
    """A trove of the version before."""
    with open_trove(place, create=True) as trove:
        trove.add_imported(imported("first", ADD))
    return place


def version_of(place):
    with open_reader(place) as reader:
        ((version,),) = reader.connection.rows("SELECT value FROM trove WHERE name = 'version'")
        return version


def remarks(place):
    with open_reader(place) as reader:
        return [remark for (remark,) in reader.connection.rows("SELECT remark FROM cases")]


def test_an_older_trove_is_migrated_when_it_is_opened_for_writing(old, later):
    before = content_of(old)
    with later(REMARKS):
        open_trove(old, create=False).close()
        assert version_of(old) == str(NEXT)
        assert remarks(old) == ["ttnn.add"]
        with open_reader(old) as reader:
            assert reader.count(Query()) == len(before["cases"])
    with pytest.raises(NewerTrove):
        open_trove(old, create=False)


def test_an_older_trove_is_migrated_when_it_is_opened_for_reading(old, later):
    with later(REMARKS):
        assert remarks(old) == ["ttnn.add"]


def test_a_migration_that_fails_leaves_the_trove_as_it_was(old, later):
    before = content_of(old)
    with later(BROKEN), pytest.raises(UnusableTrove):
        open_trove(old, create=False)
    assert version_of(old) == str(schema.VERSION)
    assert content_of(old) == before


def test_an_older_trove_that_is_locked_is_reported(tmp_path, later):
    place = place_of(str(tmp_path / "trove.db"))
    open_trove(place, create=True).close()
    holder = sqlite3.connect(place.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    try:
        with later(REMARKS), pytest.raises(UnusableTrove, match="another process is writing"):
            open_trove(place, create=False, timeout_s=0.1)
    finally:
        holder.close()


def test_a_reader_that_may_not_migrate_a_trove_gets_an_error(server, later):
    place = place_of(server.new_schema())
    open_trove(place, create=True).close()
    guest = place_of(server.as_guest(place.url))
    problem = f"has to be migrated to version {NEXT} before it can be read"
    with later(REMARKS), pytest.raises(UnusableTrove, match=problem):
        open_reader(guest)
    open_reader(guest).close()


def test_there_are_a_migration_and_a_golden_trove_of_every_version():
    versions = range(1, schema.VERSION + 1)
    golden = Path(__file__).parents[1] / "golden"
    assert sorted(path.name for path in golden.glob("trove-*.sql")) == [
        f"trove-{version}.sql" for version in versions
    ]
    scripts = Path(schema.__file__).with_name("migrations")
    assert sorted(path.name for path in scripts.iterdir()) == [
        f"{each}.sql" for each in versions[1:]
    ]
    assert f"The tables of a trove, version {schema.VERSION}," in schema.schema()


def test_every_table_and_column_has_a_comment(trove):
    tables = schema.table_comments()
    assert set(tables) == trove.connection.tables()
    for table, (_, columns) in tables.items():
        assert set(columns) == trove.connection.columns(table)


def test_a_server_stores_the_comments_too(server):
    place = place_of(server.new_schema())
    open_trove(place, create=True).close()
    asked = "SELECT obj_description(to_regclass(:name)), col_description(to_regclass(:name), 2)"
    with open_reader(place) as reader:
        ((table, column),) = reader.connection.rows(asked, {"name": "cases"})
    assert table == "Operations with their arguments, each once"
    assert column == "placement hash"


FIRST_VERSION = {
    "derived": (
        "DROP TABLE results",
        "DROP TABLE verdicts",
        "DROP TABLE op_attempts",
        "DROP TABLE last_attempts",
        "DROP TABLE origin_sets",
        "DROP TABLE origins",
        "DROP TABLE tensor_sets",
        "ALTER TABLE usage DROP COLUMN timed_calls",
        "ALTER TABLE usage DROP COLUMN total_ns",
        "DROP INDEX ix_op_usage_op",
        "ALTER TABLE op_usage DROP COLUMN timed_calls",
        "ALTER TABLE op_usage DROP COLUMN total_ns",
    ),
    "cases": (
        "DROP INDEX ix_cases_groups",
        "DROP INDEX ix_cases_order",
        "DROP INDEX ix_cases_families",
        "ALTER TABLE cases DROP COLUMN tensor_set_key",
        "ALTER TABLE cases DROP COLUMN origin_set_key",
        "ALTER TABLE cases DROP COLUMN last_outcome",
        "CREATE INDEX ix_cases_op ON cases (op, outermost_calls, calls, replayable)",
    ),
    "capsule_files": ("DROP TABLE capsule_files",),
    "config_calls": ("DROP TABLE config_calls",),
    "planned": ("DROP TABLE planned",),
    "sweeps": ("DROP TABLE sweeps",),
    "sessions": ("DROP TABLE sessions",),
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
"""Statements that lead back from the current version to the first, table by table."""


def test_a_trove_that_was_migrated_has_the_tables_of_a_new_one(new_place):
    old, new = new_place(), new_place()
    with open_trove(old, create=True) as trove:
        trove.add_imported(imported("first", ADD))
        with trove.together():
            for statement in (each for table in FIRST_VERSION.values() for each in table):
                trove.connection.execute(statement)
    assert tables_of(old) == tables_of(new)
    assert version_of(old) == str(schema.VERSION)
    with open_trove(new, create=False) as trove:
        trove.add_imported(imported("first", ADD))
    assert derived_of(old) == derived_of(new)


TABLES = {
    "sqlite": (
        """
        SELECT t.name, c.name, c.type, c."notnull", c.pk
        FROM sqlite_master t JOIN pragma_table_info(t.name) c WHERE t.type = 'table'
        """,
        """
        SELECT t.name, f."from", f."table", f."to", f.on_delete
        FROM sqlite_master t JOIN pragma_foreign_key_list(t.name) f WHERE t.type = 'table'
        """,
        """
        SELECT t.name, i.origin, i."unique", c.seqno, c.name
        FROM sqlite_master t JOIN pragma_index_list(t.name) i JOIN pragma_index_info(i.name) c
        WHERE t.type = 'table'
        """,
        "SELECT name FROM sqlite_master WHERE type = 'index'",
        "SELECT name, sql LIKE '%WITHOUT ROWID%' FROM sqlite_master WHERE type = 'table'",
    ),
    "postgresql": (
        """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, l.collname,
            col_description(c.oid, a.attnum), obj_description(c.oid)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
        LEFT JOIN pg_collation l ON l.oid = a.attcollation
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
            AND NOT a.attisdropped
        """,
        """
        SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = current_schema()::regnamespace
        """,
        """
        SELECT indexname, replace(indexdef, current_schema(), '') FROM pg_indexes
        WHERE schemaname = current_schema()
        """,
    ),
}
"""Queries about the tables of a trove, to the database itself."""


def tables_of(place):
    open_trove(place, create=True).close()
    with open_reader(place) as reader:
        asked = TABLES[reader.connection.dialect]
        return [sorted(map(repr, reader.connection.fetch(question))) for question in asked]
