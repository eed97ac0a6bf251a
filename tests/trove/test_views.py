"""The views that BI tools are promised, on SQLite and PostgreSQL alike."""

from dataclasses import replace
from datetime import datetime

import pytest

from executed_runs import NEW, OLD, SWEEP, make_executed
from optrove.model.records import Measurement, Outcome, TestOutcome
from optrove.model.trove import ColumnKind
from optrove.model.values import Int
from optrove.trove import schema
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.trove import open_trove
from optrove.trove.views import UNUSUAL, VIEWS
from traced_runs import TRACED, add_traced
from troves import Program, attempt_of, run_of

KINDS = {
    ColumnKind.TEXT: str,
    ColumnKind.NUMBER: (int, float),
    ColumnKind.FLAG: int,
    ColumnKind.TIME: (str, datetime),
}


@pytest.fixture
def viewed(place, tmp_path):
    """A trove with everything that a trove can hold, and its views."""
    made = place_of(str(make_executed(tmp_path / "made.db")))
    add_traced(made, tmp_path)
    with open_trove(place, create=True) as trove, open_reader(made) as reader:
        trove.merge(reader)
        for _ in range(2):
            trove.make_views()
        with trove.reader() as answering:
            yield trove, answering.connection


def rows(source, sql):
    return list(source.rows(sql, {}))


def test_every_view_has_the_columns_that_are_promised(viewed):
    _, source = viewed
    for view in VIEWS:
        names = ", ".join(column.name for column in view.columns)
        found = rows(source, f"SELECT {names} FROM {view.name}")  # noqa: S608 - ours
        assert found, view.name
        assert source.columns(view.name) == {column.name for column in view.columns}
        for row in found:
            for column, value in zip(view.columns, row, strict=True):
                kind = KINDS[column.kind]
                assert value is None or isinstance(value, kind), (view.name, column.name, value)


def test_the_numbers_of_the_views_are_those_of_the_trove(viewed):
    _, source = viewed
    assert rows(
        source,
        "SELECT cases, calls, outermost_calls, runs, models FROM v_ops WHERE op = 'ttnn.add'",
    ) == [(6, 75, 75, 1, 1)]
    runs = rows(source, "SELECT run_id, attempts, attempts_passed, tests, tests_passed FROM v_runs")
    found = {run_id: tuple(numbers) for run_id, *numbers in runs}
    assert found[OLD] == (8, 7, 0, 0)
    assert found[SWEEP] == (4, 2, 0, 0)
    assert found[TRACED] == (0, 0, 2, 0)
    assert rows(source, "SELECT count(*), sum(calls) FROM v_executions WHERE model = 'small'") == [
        (12, 12)
    ]
    assert rows(source, "SELECT DISTINCT outcome, passed FROM v_tests") == [("failed", 0)]


def test_failures_are_what_operations_did_not_pass_by_the_first_line_of_their_cause(viewed):
    _, source = viewed
    asked = {"run": NEW}
    causes = "SELECT outcome, cause FROM v_failures WHERE run_id = :run ORDER BY outcome"
    assert list(source.rows(causes, asked)) == [
        ("numerics", "output 0: PCC 0.5 is below 0.99"),
        ("rejected", "TT_FATAL: no bank 8"),
    ]
    numbers = "SELECT MIN(pcc), COUNT(*), COUNT(pcc) FROM v_pcc WHERE run_id = :run"
    assert list(source.rows(numbers, asked)) == [(0.5, 5, 4)]
    moments = "SELECT DISTINCT CAST(started AS TEXT) FROM v_attempts WHERE run_id = :run"
    assert list(source.rows(moments, asked)) == [("2026-02-03 04:05:07",)]


def test_views_outlive_a_change_of_the_tables(viewed, monkeypatch):
    trove, _ = viewed
    script = """
CREATE TABLE other AS SELECT * FROM case_tensors;
DROP TABLE case_tensors;
ALTER TABLE other RENAME TO case_tensors;
"""
    monkeypatch.setattr(schema, "migration", {schema.VERSION + 1: script}.__getitem__)
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    open_trove(trove.place, create=False).close()
    with open_reader(trove.place) as reader:
        assert len(rows(reader.connection, "SELECT * FROM v_tensors")) > 5


def test_odd_data_breaks_no_view(viewed, tmp_path):
    trove, source = viewed
    ((case_id,),) = rows(source, "SELECT case_id FROM v_cases WHERE op = 'ttnn.matmul'")
    run = run_of("odd", started_at="not a moment", finished_at="2026-02-31T99:99:99Z")
    measured = (Measurement("pcc", float("-inf")),)
    odd = attempt_of(case_id, "odd", Outcome.RAISED, detail="a\0b\nc\ud800", measurements=measured)
    trove.add_attempts(run, [replace(odd, started_at="", seed=10**30)])
    program = Program(tmp_path / "odd", run_of("tested"))
    program.call("fake.add", 1)
    for error in ("no\0text", "\ud800", 'an \\u0000 escape, "call_ns":7', "one\ntwo"):
        program.test("test", TestOutcome.FAILED, error=error, call_ns=1_500_000)
    program.test("test", parameters=(("call_ns", Int(7)),))
    trove.add_journal(program.end())
    for view in VIEWS:
        assert rows(source, f"SELECT * FROM {view.name}"), view.name  # noqa: S608 - ours
    question = "SELECT run_started, started, cause FROM v_failures WHERE run_id = 'odd'"
    assert rows(source, question) == [(None, None, "a\\x00b")]
    tests = rows(source, "SELECT duration_ms, error FROM v_tests WHERE run_id = 'tested'")
    assert sorted(duration or 0 for duration, _ in tests) == [0, 1.5, 1.5, 1.5, 1.5]
    assert {error for _, error in tests} == {"one", UNUSUAL, None}
