import math
from dataclasses import dataclass
from itertools import product

import pytest

from optrove.report.releases import JudgedRun, Side, compare, compared_runs, judged_of


@dataclass
class Told:
    key: int
    case_key: int
    outcome: str = "passed"
    device: str = "shadow"
    duration_ns: int | None = 1_000_000
    detail: str | None = None
    suite: str | None = None
    outputs: str | None = "[1]"
    measured: tuple = (("pcc", 0.999, 0),)


KINDS = (
    {},
    {"measured": (("pcc", 0.9, 0),)},
    {"measured": (("pcc", math.nan, 0),)},
    {"measured": ()},
    {"measured": (("pcc", 0.9, 1), ("pcc", 0.999, 0))},
    {"measured": (("e2e_ns", 90e6, None), ("pcc", 0.999, 0))},
    {"duration_ns": 30_000_000},
    {"duration_ns": None},
    {"outputs": "[2]"},
    {"outcome": "rejected", "detail": "TT_FATAL: 12 tiles\nmore", "measured": ()},
    {"outcome": "rejected", "detail": "TT_FATAL: 34 tiles", "measured": ()},
    {"outcome": "rejected", "detail": "TT_FATAL: other", "measured": ()},
    {"outcome": "rejected", "detail": "TT_FATAL: other", "suite": "xfail_some", "measured": ()},
    {"outcome": "out_of_memory", "detail": None, "measured": ()},
    {"outcome": "not_run", "detail": "no board", "measured": ()},
    {"device": "mock"},
    {"device": "mock", "outcome": "not_run", "measured": ()},
)


def side_of(attempts):
    cases = {each.case_key: judged_of(each) for each in attempts}
    return Side("", cases, device="shadow", board="n150")


@pytest.mark.parametrize("timed", [True, False])
def test_runs_are_compared_as_everywhere_else(timed):
    pairs = list(enumerate(product(KINDS, KINDS)))
    a = [Told(key, key, **before) for key, (before, _) in pairs]
    b = [Told(-key, key, **after) for key, (_, after) in reversed(pairs)]
    found = compared_runs(JudgedRun(a), JudgedRun(b), timed=timed)
    other = Side("", side_of(b).cases, device="shadow", board="n150" if timed else "n300")
    expected = compare(side_of(a), other)
    assert len(found.pop("same")) == expected.same
    assert {kind: len(keys) for kind, keys in found.items()} == {
        kind: len(getattr(expected, kind)) for kind in found
    }
    kinds = {"broken", "fixed", "moved", "not_run", "unlike"}
    assert set(found) == kinds | ({"slower"} if timed else set())
    assert all(list(keys) == sorted(keys) for keys in found.values())


def test_the_last_attempt_at_a_case_counts_and_others_are_in_one_run_only():
    passed, failed = {}, KINDS[9]
    a = JudgedRun([Told(3, 7, **failed), Told(2, 7, **passed), Told(1, 5), Told(4, 9)])
    b = JudgedRun([Told(9, 7, **passed), Told(8, 8), Told(6, 9)])
    found = compared_runs(a, b, timed=True)
    assert {kind: list(keys) for kind, keys in found.items()} == {
        "only_a": [5],
        "fixed": [7],
        "same": [9],
        "only_b": [8],
    }
    assert list(a.attempts) == [1, 3, 4]
    assert compared_runs(JudgedRun([]), JudgedRun([]), timed=True) == {}
