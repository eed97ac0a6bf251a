"""Two runs of a trove are compared by the database as they are case by case."""

import math
from itertools import product

import pytest

from optrove.model.records import DeviceKind, Measurement, Outcome, RunKind, Sweep
from optrove.model.trove import PlannedCase
from optrove.model.values import Int
from optrove.report.releases import ReleaseSide, RunChanges, compare
from optrove.serializer.described import describe_case
from optrove.trove.reader import open_reader
from trove_rows import case
from troves import attempt_of, imported, run_of


def changes_between(reader, a, b, *, timed):
    return RunChanges(reader, a, b, RunChanges.counted(reader, a, b), timed=timed)


def pcc(*values):
    return tuple(Measurement("pcc", value, output=output) for output, value in enumerate(values))


KINDS = (
    {},
    {"measurements": pcc(0.9)},
    {"measurements": pcc(math.nan)},
    {"measurements": ()},
    {"measurements": pcc(0.999, 0.9)},
    {"measurements": pcc(0.9, 0.999)},
    {"measurements": (Measurement("e2e_ns", 90e6), *pcc(0.999))},
    {"duration_ns": 30_000_000},
    {"duration_ns": None},
    {"outputs": (Int(2),)},
    {"outcome": Outcome.REJECTED, "detail": "TT_FATAL: 12 tiles\nmore", "measurements": ()},
    {"outcome": Outcome.REJECTED, "detail": "TT_FATAL: 34 tiles", "measurements": ()},
    {"outcome": Outcome.REJECTED, "detail": "TT_FATAL: other", "measurements": ()},
    {"outcome": Outcome.NUMERICS, "detail": "too far off", "measurements": pcc(0.5)},
    {"outcome": Outcome.NUMERICS, "detail": "too far off", "measurements": pcc(0.6)},
    {"outcome": Outcome.OUT_OF_MEMORY, "detail": None, "measurements": ()},
    {"outcome": Outcome.NOT_RUN, "detail": "no board", "measurements": ()},
    {"device_kind": DeviceKind.MOCK},
    {"device_kind": DeviceKind.MOCK, "outcome": Outcome.NOT_RUN, "measurements": ()},
    None,
)
"""What may come of a case in a run; None: it is not tried."""

USUAL = {
    "device_kind": DeviceKind.SHADOW,
    "duration_ns": 1_000_000,
    "measurements": pcc(0.999),
    "board": "n150",
}


@pytest.fixture
def compared(trove):
    """A trove with two sweeps in which everything came of some case; B expects some failures."""
    pairs = list(product(KINDS, KINDS))
    cases = [case("ttnn.add", b=number) for number in range(2 * len(pairs))]
    ids = [describe_case(each).case_id for each in cases]
    trove.add_imported(imported("first", *cases))
    for name, place in (("a", 0), ("b", 1)):
        run = run_of(name, kind=RunKind.SWEEP)
        suites = ["xfail_some" if name == "b" and each % 2 else None for each in range(len(ids))]
        plan = [
            PlannedCase(each, DeviceKind.SHADOW, "n150", suite)
            for each, suite in zip(ids, suites, strict=True)
        ]
        trove.add_sweep(run, Sweep(), plan)
        facts = [pairs[number // 2][place] for number in range(len(ids))]
        attempts = [
            attempt_of(case_id, run.id, **{**USUAL, **each})
            for case_id, each in zip(ids, facts, strict=True)
            if each is not None
        ]
        trove.add_attempts(run, attempts)
    return trove


@pytest.mark.parametrize("timed", [True, False])
def test_the_database_finds_the_changes_that_comparing_case_by_case_finds(compared, place, timed):
    with open_reader(place) as reader:
        keys = {name: reader.runs(name)[0].key for name in ("a", "b")}
        sides = []
        for name, board in (("a", "n150"), ("b", "n150" if timed else "n300")):
            cases = {each.attempt.case_id: each for each in reader.attempted_cases(name)}
            sides.append(ReleaseSide(name, cases, device="shadow", board=board))
        expected = compare(*sides)
        changes = changes_between(reader, keys["a"], keys["b"], timed=timed)
        counts = changes.counts()
        assert counts.pop("same") == expected.same
        kinds = {"broken", "fixed", "moved", "not_run", "unlike", "only_a", "only_b"}
        assert set(counts) == kinds | ({"slower"} if timed else set())
        found = {
            **{
                kind: [each.before.attempt.case_id for each in changed]
                for kind, changed in expected.changes.items()
            },
            "only_a": expected.only_a,
            "only_b": expected.only_b,
        }
        for kind, count in counts.items():
            assert len(found[kind]) == count, kind
            some = changes.cases(kind, -1, 10_000)
            assert some == sorted(some)
            ids = {case_id for case_id, _ in reader.case_names(some).values()}
            assert ids == set(found[kind]), kind
            rest = changes.cases(kind, some[0], 10_000)
            assert rest == some[1:]


def test_the_last_attempt_at_a_case_counts(trove, place):
    one = case("ttnn.add", b=1)
    case_id = describe_case(one).case_id
    trove.add_imported(imported("first", one))
    for name, outcomes in (("a", [Outcome.PASSED, Outcome.REJECTED]), ("b", [Outcome.PASSED])):
        run = run_of(name, kind=RunKind.REPLAY)
        for outcome in outcomes:
            trove.add_attempts(run, [attempt_of(case_id, name, outcome)])
    with open_reader(place) as reader:
        a, b = (reader.runs(name)[0].key for name in ("a", "b"))
        assert changes_between(reader, a, b, timed=True).counts() == {
            "only_a": 0,
            "only_b": 0,
            "fixed": 1,
        }
        assert changes_between(reader, b, a, timed=True).counts() == {
            "only_a": 0,
            "only_b": 0,
            "broken": 1,
        }
