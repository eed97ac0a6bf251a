from dataclasses import replace

from drawn import drawn_lines
from optrove.model.records import RunKind
from optrove.model.trove import Machine, RunRow
from optrove.report.listings import runs_document
from small_trove import run_of

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
    interrupted = row("replay *", RunKind.REPLAY, 130, attempts=(("passed", 2),))
    assert "exit 130" in runs_lines([interrupted])[1]
    assert "incomplete" in runs_lines([row("a", complete=False)])[1]
