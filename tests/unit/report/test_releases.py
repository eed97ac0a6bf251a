import math

import pytest

from attempts import add, attempted
from optrove.model.records import Measurement, Outcome
from optrove.report.releases import Side, compare, judged, release_data, release_lines
from trove_rows import tensor


def side(name, *attempts, **facts):
    cases = [judged(each.case.op, each.attempt) for each in attempts]
    return Side(name, {each.case_id: each for each in cases}, **facts)


def compared(before, after):
    return compare(side("a", before), side("b", after))


def with_pcc(value, output=0):
    return attempted(measurements=(Measurement("pcc", value, 0.99, passed=True, output=output),))


GOOD, BAD = attempted(), attempted(Outcome.REJECTED, "no bank 8")


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (GOOD, GOOD, None),
        (GOOD, BAD, "broken"),
        (GOOD, attempted(Outcome.CRASHED, "signal 11"), "broken"),
        (BAD, GOOD, "fixed"),
        (BAD, attempted(Outcome.REJECTED, "no bank 9"), None),
        (BAD, attempted(Outcome.REJECTED, "another reason"), "moved"),
        (BAD, attempted(Outcome.OUT_OF_MEMORY, "no bank 8"), "moved"),
        (GOOD, attempted(outputs=(tensor(32, 64),)), "moved"),
        (GOOD, attempted(Outcome.NOT_RUN, "no ttnn"), "not_run"),
        (attempted(Outcome.NOT_RUN, "no ttnn"), BAD, "not_run"),
        (with_pcc(0.9999), with_pcc(0.9998), None),
        (with_pcc(0.9999), with_pcc(0.995), "moved"),
        (with_pcc(0.995), with_pcc(0.9999), "moved"),
        (with_pcc(0.9999), with_pcc(math.nan), "moved"),
        (with_pcc(math.nan), with_pcc(math.nan), None),
    ],
)
def test_what_has_changed(before, after, kind):
    found = compared(before, after)
    kinds = ("broken", "fixed", "moved", "not_run")
    assert [name for name in kinds if getattr(found, name)] == ([] if kind is None else [kind])
    assert found.same == (kind is None)
    assert found.compared == (kind != "not_run")


def test_every_case_is_in_exactly_one_place():
    a = side("a", attempted(one=add(1)), attempted(one=add(2)), attempted(one=add(3)))
    b = side(
        "b", attempted(Outcome.REJECTED, "no", add(2)), attempted(one=add(3)), attempted(one=add(4))
    )
    found = compare(a, b)
    data = release_data(a, b, found)
    assert sum(data["counts"].values()) == len(a.cases.keys() | b.cases.keys()) == 4
    assert data["counts"] | {"broken": 1, "same": 1, "only_a": 1, "only_b": 1} == data["counts"]
    (change,) = data["broken"]
    assert (change["before"], change["after"]) == ("passed", "rejected")


def test_the_text_tells_both_releases_and_groups_what_broke_alike():
    cases = [add(number) for number in range(6)]
    a = side(
        "run a",
        *(attempted(one=one) for one in cases),
        ttnn_version="0.80",
        board="n150",
        device="mock",
    )
    b = side(
        "run b",
        *(attempted(Outcome.REJECTED, f"no bank {place}", one) for place, one in enumerate(cases)),
        ttnn_version="0.81",
    )
    lines = release_lines(a, b, compare(a, b))
    assert lines[0] == "A: run a (ttnn 0.80, mock n150, 6 cases)"
    assert lines[1] == "B: run b (ttnn 0.81, 6 cases)"
    assert lines[2] == "6 cases compared: 6 broken, 0 fixed, 0 moved, 0 the same"
    assert "broken:" in lines
    (cause,) = [line for line in lines if line.startswith("  6x ttnn.add: rejected: no bank ")]
    assert lines[lines.index(cause) + 1].endswith(" and 2 more")
