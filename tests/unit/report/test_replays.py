import json
import math
from dataclasses import replace

import pytest

from attempts import add, attempted
from drawn import drawn_lines
from optrove.model.records import HARMLESS, REFUSED, DeviceKind, Measurement, Outcome
from optrove.report.attempts import (
    attempted_data,
    causes,
    counts_of,
    is_as_recorded,
    remarks_of,
)
from optrove.report.draw_text import WHOLE
from optrove.report.replays import (
    board_data,
    board_document,
    replay_document,
)
from optrove.report.wording import number
from optrove.serializer.described import case_of
from trove_rows import tensor


def attempts_lines(attempts, width=None):
    return drawn_lines(replay_document(attempts, case_of(attempts[0].content)), width)


def attempt_lines(one):
    return attempts_lines([one])


def board_lines(attempts, left_out, command, width=None):
    return drawn_lines(board_document(attempts, left_out, command), width)


def replay_line(one):
    return f"replay {one.attempt.case_id}"


FATAL = "Not enough banks\nRuntimeError: TT_FATAL @ x.cpp:1: banks\ninfo:\nNot enough banks"
FABRIC = "no fabric was recorded; the mesh was opened with FABRIC_1D"
COUNTED = "4 cases: 1 passed, 3 not run"
DIFFERENCE = "$.arguments.x: recorded 1, replayed 2"


def test_what_failed_has_a_cause_and_the_words_of_ttnn():
    one = attempted(Outcome.REJECTED, FATAL).attempt
    parts = remarks_of(one)
    assert one.cause == "Not enough banks"
    assert parts.words[0].startswith("RuntimeError: TT_FATAL")
    assert parts.notes == parts.differences == ()


def test_what_passed_has_notes_and_differences_and_no_cause():
    one = attempted(detail=f"{FABRIC}\nnot as recorded: {DIFFERENCE}").attempt
    parts = remarks_of(one)
    assert (one.cause, parts.notes, parts.differences) == (None, (FABRIC,), (DIFFERENCE,))
    assert not is_as_recorded(one)


def test_a_note_about_several_parts_of_an_argument_is_shown_once():
    one = replace(attempted().attempt, notes=(FABRIC, "other", FABRIC))
    assert remarks_of(one).notes == (FABRIC, "other")
    assert is_as_recorded(attempted(detail=FABRIC).attempt)
    assert not is_as_recorded(attempted(Outcome.NOT_RUN, "no").attempt)


def test_counts_add_up():
    every = [
        attempted(),
        attempted(Outcome.REJECTED, FATAL),
        attempted(Outcome.NOT_RUN, "no chips"),
    ]
    assert counts_of(each.attempt for each in every) == {"passed": 1, "rejected": 1, "not_run": 1}
    assert attempts_lines(every)[-1] == "3 cases: 1 passed, 1 rejected, 1 not run"


def test_the_block_tells_outputs_verdict_metrics_and_notes():
    measured = (
        Measurement("pcc", 0.9999999, 0.99, passed=True, output=0),
        Measurement("ulp", 1.0, output=0),
    )
    one = attempted(
        detail=FABRIC,
        measurements=measured,
        outputs=(tensor(32, 32, number=1),),
        device_kind=DeviceKind.SHADOW,
        seed=3,
        duration_ns=1_500_000,
        calls=12,
    )
    lines = [line.strip() for line in attempt_lines(one)]
    assert lines[0].startswith("ttnn.add: case ")
    assert lines[0].endswith(", 12 calls recorded")
    assert "input_tensor_b: 0" in lines
    assert "output: Tensor(shape=[32, 32], dtype=BFLOAT16, memory=DRAM_INTERLEAVED)" in lines
    assert "verdict: passed, 1.5 ms, seed 3" in lines
    assert "pcc: 0.9999999 (at least 0.99)" in lines
    assert "ulp: 1" in lines
    assert f"note: {FABRIC}" in lines
    assert "the traced replay is the recorded case: equal hash" in lines


def test_a_pass_on_a_mock_board_says_that_no_numbers_were_compared():
    lines = [line.strip() for line in attempt_lines(attempted(device_kind=DeviceKind.MOCK))]
    assert any(line.endswith("a mock board computes no numbers to compare") for line in lines)


def test_the_block_tells_why_and_how_it_differs():
    text = "\n".join(
        attempt_lines(attempted(Outcome.REJECTED, f"{FATAL}\nnot as recorded: {DIFFERENCE}"))
    )
    assert "verdict: rejected" in text
    assert "because: Not enough banks" in text
    assert "TT_FATAL @ x.cpp:1" in text
    text = "\n".join(
        attempt_lines(attempted(replayed_case_id="other", detail=f"not as recorded: {DIFFERENCE}"))
    )
    assert f"differs: {DIFFERENCE}" in text


def test_the_block_says_what_is_wrong_once_and_leaves_the_backtrace_to_machines():
    detail = "\n".join(
        [
            "no bank",
            "RuntimeError: TT_FATAL @ x.cpp:1",
            "info:",
            "no bank",
            "backtrace:",
            " --- f()",
        ]
    )
    lines = attempt_lines(attempted(Outcome.REJECTED, detail))
    text = "\n".join(lines)
    assert text.count("no bank") == 1
    assert "    RuntimeError: TT_FATAL @ x.cpp:1" in lines
    assert "    (2 more lines with a backtrace: --json)" in lines
    assert " --- " not in text


def test_a_bound_that_is_missed_says_so():
    missed = Measurement("pcc", 0.5, 0.99, passed=False, output=0)
    text = "\n".join(attempt_lines(attempted(Outcome.NUMERICS, "PCC 0.5", measurements=(missed,))))
    assert "pcc: 0.5 (not at least 0.99)" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (0.999999999, "0.999999999"),
        (0.123456, "0.12346"),
        (math.nan, "nan"),
        (0.0, "0"),
    ],
)
def test_what_is_not_one_never_looks_like_it(value, text):
    assert number(value) == text


def test_the_table_begins_with_what_failed():
    every = [
        attempted(),
        attempted(Outcome.REJECTED, FATAL, add(1)),
        attempted(Outcome.NUMERICS, "PCC", add(2)),
    ]
    shown = attempts_lines(every)
    assert ["rejected" in shown[1], "wrong numbers" in shown[2], "passed" in shown[3]] == [True] * 3
    assert shown[1].endswith("Not enough banks")
    assert shown[-1] == "3 cases: 1 passed, 1 wrong numbers, 1 rejected"


def test_the_table_is_followed_by_what_was_supplied():
    lines = attempts_lines([attempted(detail=FABRIC), attempted(detail=FABRIC, one=add(1))])
    assert lines[-4:] == [
        "supplied, changed, or not compared:",
        f"  2x {FABRIC}",
        "",
        "2 cases: 2 passed",
    ]


def test_what_fails_for_one_reason_is_one_cause_whatever_the_numbers():
    every = [
        attempted(),
        attempted(Outcome.REJECTED, "shard core (8, 0) has no bank", add(1), calls=5),
        attempted(Outcome.REJECTED, "shard core (9, 0) has no bank", add(2), calls=9),
        attempted(Outcome.OUT_OF_MEMORY, "shard core (9, 0) has no bank", add(3)),
        attempted(Outcome.REJECTED, "other", add(4)),
    ]
    found = causes(every)
    assert [(each.outcome.value, each.count, each.calls) for each in found] == [
        ("rejected", 2, 14),
        ("rejected", 1, 1),
        ("out_of_memory", 1, 1),
    ]
    assert found[0].text == "shard core (9, 0) has no bank"
    assert found[0].example is every[2]


def test_the_pcc_of_a_case_is_not_the_name_of_a_cause():
    every = [
        attempted(Outcome.NUMERICS, f"output 0: PCC {pcc} is below 0.99", add(place))
        for place, pcc in enumerate(("0.5", "-1.2e-05", "nan"))
    ]
    (found,) = causes(every)
    assert (found.count, found.text) == (3, "output 0: PCC is below 0.99")


def test_the_answer_of_a_board_names_causes_commands_and_what_was_supplied():
    every = [
        attempted(detail=f"{FABRIC}\nnot as recorded: {DIFFERENCE}"),
        attempted(Outcome.REJECTED, "no bank 8", add(1)),
        attempted(Outcome.REJECTED, "no bank 9", add(2)),
    ]
    lines = board_lines(every, (("cases of torch", 4),), replay_line)
    counts = "3 cases: 1 accepted, 2 rejected by ttnn"
    assert lines[0] == f"{counts} (33.3% accepted of 3 cases that ran)"
    assert "left out: 4 cases of torch" in lines
    assert "  2x no bank 8" in lines or "  2x no bank 9" in lines
    assert any(line.strip().startswith("replay ") for line in lines)
    assert lines[-2:] == [
        f"  1x not as recorded: {DIFFERENCE}",
        f"  1x {FABRIC}",
    ]


@pytest.mark.parametrize(
    ("passed", "of", "text"),
    [(2000, 2000, "100.0%"), (1999, 2000, "99.9%"), (1, 3000, "0.1%")],
)
def test_a_share_never_looks_like_all_or_nothing_when_it_is_not(passed, of, text):
    good, bad = attempted(), attempted(Outcome.REJECTED, "no")
    lines = board_lines([good] * passed + [bad] * (of - passed), (), replay_line)
    assert f"({text} accepted of {of:,} cases that ran)" in lines[0]


def test_the_share_is_of_the_cases_that_ran():
    lost = attempted(Outcome.NOT_RUN, "no chips")
    bad = attempted(Outcome.REJECTED, "no")
    (first, *_) = board_lines([attempted(), bad, lost, lost], (), replay_line)
    assert first.endswith("1 rejected by ttnn, 2 not run (50.0% accepted of 2 cases that ran)")
    (first, *_) = board_lines([lost], (), replay_line)
    assert first == "1 case: 1 not run (no case ran)"


def test_cases_that_did_not_run_for_one_reason_are_one_item_of_a_replay():
    lost = [attempted(Outcome.NOT_RUN, "no chips", add(place)) for place in range(3)]
    lines = attempts_lines([attempted(), *lost])
    assert "\n".join(lines).count("no chips") == 1
    assert lines[-5:] == ["not run:", "  3x no chips", "     ttnn.add", "", COUNTED]
    assert attempts_lines(lost)[0] == "not run:"


def test_one_cause_of_many_ops_is_shown_once():
    from trove_rows import case

    every = [
        attempted(Outcome.NOT_RUN, "no chips", case(f"ttnn.op{number}", a=1)) for number in range(6)
    ]
    lines = board_lines(every, (), replay_line)
    assert "  6x no chips" in lines
    assert any(line.endswith("1x ttnn.op3, 2 more ops") for line in lines)


def test_long_reasons_break_between_words_and_it_is_said_where_they_are_whole():
    reason = " ".join(f"word{place}" for place in range(60))
    lines = board_lines([attempted(Outcome.REJECTED, reason)], (), replay_line, 60)
    first = lines.index("rejected by ttnn:") + 1
    shown = lines[first : lines.index("     ttnn.add")]
    assert max(map(len, shown)) <= 60
    rest = " ".join(line.strip() for line in shown).removeprefix("1x ").removesuffix(" ...")
    assert rest != reason
    assert f"{reason} ".startswith(f"{rest} ")
    assert lines[-1] == WHOLE
    whole = " ".join(line.strip() for line in attempt_lines(attempted(Outcome.REJECTED, reason)))
    assert reason in whole
    table = attempts_lines([attempted(Outcome.REJECTED, reason)] * 2, 120)
    assert table[1].endswith(" ...")
    assert table[-1] == WHOLE


def test_short_reasons_need_no_word_about_longer_ones():
    lines = board_lines([attempted(Outcome.REJECTED, "no bank")], (), replay_line)
    assert not any("..." in line for line in lines)


def test_a_fault_of_python_is_named_by_its_last_line():
    detail = "the replay failed:\nTraceback (most recent call last):\n  File x\nKeyError: 'y'\n"
    (found,) = causes([attempted(Outcome.NOT_RUN, detail)])
    assert found.text == "the replay failed: KeyError: 'y'"


def test_the_data_is_json_and_its_counts_are_what_was_planned():
    nan = Measurement("pcc", math.nan, 0.99, passed=False, output=0)
    every = [attempted(), attempted(Outcome.NUMERICS, "PCC nan", add(1), measurements=(nan,))]
    data = json.loads(json.dumps(board_data(every, (), replay_line), allow_nan=False))
    assert sum(data["counts"].values()) == data["planned"] == len(data["cases"]) == 2
    assert data["cases"][1]["measurements"][0]["value"] == {"$float": "nan"}
    assert data["cases"][0] == attempted_data(every[0])
    assert data["causes"][0]["example"] == every[1].attempt.case_id


def test_a_tensor_that_was_refused_is_told_with_the_rejection():
    refused = f"{REFUSED}input_tensor_b was made; the op was not called"
    lines = board_lines([attempted(Outcome.REJECTED, "no bank", notes=(refused,))], (), replay_line)
    first = lines.index("  1x no bank")
    assert lines[first + 1 : first + 3] == ["     ttnn.add", f"     {refused}"]
    assert not any("supplied" in line for line in lines)


@pytest.mark.parametrize(
    "harmless",
    [
        f"{HARMLESS}dispatch along this board's own axis, recorded by ROW",
        f"{HARMLESS}ttnn places the output otherwise on this board: $.outputs[0]: 1 instead of 2",
    ],
)
def test_notes_that_ask_for_nothing_are_for_machines_only(harmless):
    every = [attempted(detail=harmless), attempted(detail=harmless)]
    assert not any("supplied" in line for line in board_lines(every, (), replay_line))
    assert board_data(every, (), replay_line)["notes"] == {harmless: 2}
