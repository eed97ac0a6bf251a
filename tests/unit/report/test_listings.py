from dataclasses import replace

from drawn import drawn_lines
from optrove.model.ops import Amount, LeftOut
from optrove.model.records import RunKind
from optrove.model.trove import Machine, OpRow, RunProgress, RunRow, RunState
from optrove.report.listings import ops_data, ops_document, runs_document
from small_trove import run_of


def ops_lines(rows, left, *, all_ops, width=None):
    return drawn_lines(ops_document(rows, left, all_ops=all_ops), width)


LLAMA = "meta-llama/Llama-3.2-11B-Vision-Instruct"
ROWS = (
    OpRow("ttnn.matmul", 12, 4096, (LLAMA, "resnet50"), 1.0),
    OpRow("ttnn.to_device", 3, 512, (LLAMA,), 1.0),
    OpRow("ttnn.add", 2, 7, (LLAMA,), 0.5),
)
LEFT = LeftOut(moving=Amount(1, 3, 512))


def test_ops_are_listed_with_their_totals_and_with_what_these_leave_out():
    left = LeftOut(LEFT.moving, nested=Amount(1, 0, 2))
    assert ops_lines(ROWS, left, all_ops=False) == [
        "op           cases  calls  complete  models",
        "ttnn.matmul     12  4,096      100%  2 models",
        f"ttnn.add         2      7       50%  {LLAMA}",
        "",
        "2 ops, 14 cases, 4,103 calls from 2 models",
        "left out: 512 calls, 3 cases of 1 op that only moves data (--all-ops counts them)",
        "left out: 2 calls made by other ops (--all-ops --nested counts them)",
    ]


def test_all_ops_are_shown_on_demand():
    lines = ops_lines(ROWS, LeftOut(), all_ops=True)
    assert lines[-1] == "3 ops, 17 cases, 4,615 calls from 2 models"


def test_a_list_fits_into_a_terminal_of_80_columns():
    longest = OpRow("ttnn.experimental.all_gather_minimal_matmul", 1, 1, (LLAMA,), 1.0)
    assert max(map(len, ops_lines((*ROWS, longest), LEFT, all_ops=True, width=80))) == 80


def test_data_movement_ops_alone_make_no_table():
    assert ops_lines(ROWS[1:2], LEFT, all_ops=False) == [
        "0 ops, 0 cases, 0 calls from 0 models",
        "left out: 512 calls, 3 cases of 1 op that only moves data (--all-ops counts them)",
    ]


def test_machines_get_names_of_models_and_a_share():
    assert ops_data(ROWS, all_ops=False)[1] == {
        "op": "ttnn.add",
        "cases": 2,
        "calls": 7,
        "models": [LLAMA],
        "replayable": 0.5,
    }
    assert len(ops_data(ROWS, all_ops=True)) == 3


LONG = "models/demos/llama/tests/test_decode_in_one_go.py::test_all"


def runs_lines(rows, width=None):
    return drawn_lines(runs_document(rows), width)


def row(source, kind=RunKind.TRACE, exit_code=0, **more):
    run = replace(run_of("ab" * 16, source, board="p150"), kind=kind, exit_code=exit_code)
    return RunRow(run, Machine(), 49, 16, **more)


def test_on_a_narrow_terminal_every_source_is_whole_and_nothing_is_wider():
    swept = row("sweep * model=attn all_ops", RunKind.SWEEP, attempts=(("passed", 88),))
    lines = runs_lines([swept, row(LONG, tests=(("passed", 3),))], 80)
    assert max(map(len, lines)) <= 80
    table = lines[1 : lines.index("")]
    source = lines[0].index("model or source")
    assert table[0][source:] == "sweep * model=attn"
    assert table[1].strip() == "all_ops"
    assert "".join(line[source:] for line in table[2:]) == LONG


def test_columns_without_any_word_are_left_out():
    assert "state" not in runs_lines([row("a")])[0]
    assert "passed" not in runs_lines([row("a")])[0]
    assert "state" in runs_lines([row("a", exit_code=1)])[0]
    assert runs_lines([])[0] == "run  model or source"


def test_a_state_is_shown_where_the_passed_cases_do_not_show_it():
    failed = row("replay *", RunKind.REPLAY, 1, attempts=(("passed", 2), ("rejected", 1)))
    assert "exit" not in runs_lines([failed])[1]
    idle = row("replay *", RunKind.REPLAY, 1, attempts=(("passed", 44), ("not_run", 2)))
    assert "44/44  2 not run" in runs_lines([idle])[1]
    interrupted = row("replay *", RunKind.REPLAY, 130, attempts=(("passed", 2),))
    assert "exit 130" in runs_lines([interrupted])[1]
    assert "incomplete" in runs_lines([row("a", progress=RunProgress(RunState.KILLED))])[1]
