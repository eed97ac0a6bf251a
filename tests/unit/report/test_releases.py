import math
from dataclasses import replace

import pytest

from attempts import add, attempted
from drawn import drawn_lines
from optrove.model.records import LOST, DeviceKind, Measurement, Outcome
from optrove.report.releases import KINDS, ReleaseSide, compare, release_data, release_document
from trove_rows import tensor


def side(name, *attempts, **facts):
    return ReleaseSide(name, {each.attempt.case_id: each for each in attempts}, **facts)


def compared(before, after):
    return compare(side("a", before), side("b", after))


def test_a_run_on_the_host_names_the_version_of_torch():
    one = side("a", ttnn_version="0.81", torch_version="2.7", device="host")
    assert str(one) == "a (torch 2.7, recorded devices, 0 cases)"


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
        (GOOD, attempted(device_kind=DeviceKind.SHADOW), "unlike"),
        (attempted(Outcome.NUMERICS, device_kind=DeviceKind.SHADOW), GOOD, "unlike"),
    ],
)
def test_what_has_changed(before, after, kind):
    found = compared(before, after)
    assert [name for name in KINDS if found.changes[name]] == ([] if kind is None else [kind])
    assert found.same == (kind is None)
    assert found.compared == (kind not in ("not_run", "unlike"))


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "slower"),
    [(100, 201, True), (100, 199, False), (1, 5, False), (1, 11, True), (100, 20, False)],
)
def test_what_takes_much_longer_is_slower(before_ms, after_ms, slower):
    sides = [
        side(name, attempted(duration_ns=ms * 1_000_000), device="hw", board="n150")
        for name, ms in (("a", before_ms), ("b", after_ms))
    ]
    found = compare(*sides)
    assert (len(found.changes["slower"]), found.regressions) == (slower, slower)
    assert found.compared == 1


@pytest.mark.parametrize(
    ("facts", "slower"),
    [
        ({"device": "mock", "board": "n150"}, 1),
        ({"device": "hw", "board": "n300"}, 0),
        ({}, 0),
    ],
)
def test_time_is_compared_on_like_boards_and_counts_on_real_ones(facts, slower):
    first = {**facts, "board": "n150"} if facts.get("device") == "hw" else facts
    a = side("a", attempted(duration_ns=10**9), **first)
    b = side("b", attempted(duration_ns=10**10), **facts)
    found = compare(a, b)
    assert (len(found.changes["slower"]), found.regressions) == (slower, 0)


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        (GOOD, BAD, 1),
        (BAD, GOOD, 0),
        (with_pcc(0.9999), with_pcc(0.995), 1),
        (with_pcc(0.995), with_pcc(0.9999), 0),
        (with_pcc(0.9999), with_pcc(math.nan), 1),
        (with_pcc(math.nan), with_pcc(0.9999), 0),
        (BAD, attempted(Outcome.OUT_OF_MEMORY, "no bank 8"), 0),
        (GOOD, attempted(Outcome.NOT_RUN, "no ttnn"), 0),
    ],
)
def test_what_is_worse_is_a_regression(before, after, worse):
    assert compared(before, after).regressions == worse


NO_BOARD = attempted(Outcome.NOT_RUN, "ttnn has found no board")


@pytest.mark.parametrize(
    ("before", "after", "waiting", "text"),
    [
        (GOOD, GOOD, 0, None),
        (BAD, BAD, 0, None),
        (GOOD, BAD, 0, "exit code 1: 1 worse than before"),
        (GOOD, NO_BOARD, 0, "exit code 1: 1 not run"),
        (NO_BOARD, NO_BOARD, 0, None),
        (NO_BOARD, GOOD, 0, None),
        (GOOD, GOOD, 3, "exit code 1: 3 not attempted"),
        (GOOD, attempted(Outcome.NOT_RUN, f"{LOST}lost a"), 0, "exit code 0; not counted by --f"),
    ],
)
def test_a_run_that_answers_less_than_before_is_not_good(before, after, waiting, text):
    ending = compare(side("a", before), side("b", after, waiting=waiting)).exit()
    assert ending.code == ("code 1" in (text or ""))
    assert ending.text is text or ending.text.startswith(text)


def test_of_several_outputs_the_worst_counts():
    before, after = (
        attempted(measurements=tuple(Measurement("pcc", v, output=n) for n, v in enumerate(values)))
        for values in ((0.9, 0.9999, 0.9999), (0.9999, 0.999, 0.5))
    )
    (change,) = compared(before, after).changes["moved"]
    assert change.worse
    assert change.text == "PCC was 0.9999, is 0.5"


def test_an_expected_failure_is_not_a_regression():
    found = compared(GOOD, replace(BAD, suite="xfail_some"))
    counts = {kind: len(changes) for kind, changes in found.changes.items() if changes}
    assert (counts, found.regressions) == ({"moved": 1}, 0)


def test_every_case_is_in_exactly_one_place():
    a = side("a", attempted(one=add(1)), attempted(one=add(2)), attempted(one=add(3)))
    b = side(
        "b", attempted(Outcome.REJECTED, "no", add(2)), attempted(one=add(3)), attempted(one=add(4))
    )
    data = release_data(compare(a, b))
    assert sum(data["counts"].values()) == len(a.cases.keys() | b.cases.keys()) == 4
    assert data["counts"] | {"broken": 1, "same": 1, "only_a": 1, "only_b": 1} == data["counts"]
    (change,) = data["broken"]
    assert (change["before"], change["after"]) == ("passed", "rejected")


def test_the_text_names_both_releases_and_groups_equal_failures():
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
    lines = drawn_lines(release_document(compare(a, b)))
    assert lines[0] == "A: run a (ttnn 0.80, mock n150, 6 cases)"
    assert lines[1] == "B: run b (ttnn 0.81, 6 cases)"
    assert lines[2] == "not on the same device: A on mock n150; B on an unknown device"
    assert lines[3] == "6 cases compared, 6 broken, 0 fixed, 0 moved, 0 slower, 0 the same"
    assert "broken:" in lines
    (cause,) = [line for line in lines if line.startswith("  6x rejected: no bank ")]
    below = lines[lines.index(cause) + 1]
    assert below.startswith("     ttnn.add: case ")
    assert below.endswith(" and 2 more")


def test_a_long_reason_is_cut_in_the_text_and_whole_in_the_data():
    reason = "no bank " * 100
    a, b = side("a", GOOD), side("b", attempted(Outcome.REJECTED, reason))
    lines = drawn_lines(release_document(compare(a, b)))
    assert reason not in " ".join(line.strip() for line in lines)
    assert lines[-1] == '--json shows the texts that "..." cuts short'
    assert reason.strip() in release_data(compare(a, b))["broken"][0]["change"]
