"""Troves to be looked at in a browser: one with something of everything, and a hostile one."""

from __future__ import annotations

from dataclasses import replace

from optrove.model.records import (
    Attempt,
    DeviceKind,
    Environment,
    Measurement,
    Outcome,
    Run,
    RunKind,
    Sweep,
    TestOutcome,
)
from optrove.model.trove import PlannedCase
from optrove.serializer.described import describe_case
from optrove.trove.place import place_of
from optrove.trove.sessions import new_session
from optrove.trove.trove import open_trove
from small_trove import LLAMA_CASES, LLAMA_IMPORT, RESNET_IMPORT, imported, run_of
from trove_rows import case, memory, shard, tensor
from troves import Program
from troves import run_of as traced_run

BEFORE, AFTER, ELSEWHERE, SWEEP, MOCKED = (
    f"{name:0<32}" for name in ("be4", "af7e", "e15e", "5eeb", "30c4")
)
TRACED = "7aced" + "0" * 27
SOFTMAX = "softmax-model"
RIGHT_TO_LEFT = "\u05e9\u05dc\u05d5\u05dd \u202egpj.exe"
MARKUP = "<script>alert('x')</script>"
NASTY = (
    MARKUP,
    "\"><img src=x onerror=alert(1)>'",
    "null\0byte",
    RIGHT_TO_LEFT,
    "{{ 7 * 7 }} {% raw %}",
    "../../etc/passwd",
    "a&b?c=d#e%00 +/\\",
    "\ud800 half",
    "x" * 1_000_000,
)


def softmax(rows):
    """Return one of many cases of one op, each in a family of its own."""
    spread = shard((32, 64), (7, rows % 3), "COL_MAJOR" if rows % 2 else "ROW_MAJOR")
    where = memory("L1_HEIGHT_SHARDED", spread)
    return case("ttnn.softmax", dim=-1, input_tensor=tensor(1, 1, 32 * (rows + 1), 64, where=where))


SOFTMAX_CASES = tuple((softmax(rows), 200 - rows) for rows in range(60))


def executed(run_id, board, version, day, device=DeviceKind.SHADOW):
    """Return a run that executes cases on a mock board."""
    environment = Environment(
        *("0.1", "3.12", "linux"),
        command_line=("optrove", "check-board", board),
        ttnn_version=version,
        device_kind=device,
        board=board,
    )
    started = f"2026-02-{day:02}T08:00:00.000000Z"
    return Run(run_id, RunKind.REPLAY, f"check-board {board}", environment, started, started)


def attempts_at(run, cases):
    """Return attempts at cases: ``outcome`` is PASSED if only a PCC and a time are given."""
    for number, (one, results) in enumerate(cases):
        outcome, pcc, took = results
        detail = None if outcome is Outcome.PASSED else f"TT_FATAL: {outcome.value} by {run.id[:6]}"
        yield Attempt(
            run_id=run.id,
            case_id=describe_case(one).case_id,
            outcome=outcome,
            device_kind=run.environment.device_kind,
            board=run.environment.board,
            detail=detail,
            measurements=() if pcc is None else (Measurement("pcc", pcc, 0.99, passed=pcc > 0.99),),
            started_at=run.started_at.replace("08:00", f"08:{number % 60:02}"),
            duration_ns=took,
        )


def _program(directory):
    program = Program(directory, traced_run(TRACED, model="traced/model"))
    for test in range(55):
        name = f"tests/test_model.py::test_layer[{test}]"
        program.within(name, module=f"layers.{test}")
        for size in range(4):
            program.call("ttnn.traced_op", size, test % 3)
        program.call("ttnn.outer", test, result=lambda: program.call("ttnn.inner", 1))
        program.test(name, TestOutcome.FAILED if test == 7 else TestOutcome.PASSED)
    return program.end()


def _fill(trove, directory):
    for part in (LLAMA_IMPORT, RESNET_IMPORT):
        trove.add_imported(part)
    trove.add_imported(
        imported(run_of("50f7" + "0" * 28, "softmax.py", model=SOFTMAX), SOFTMAX_CASES)
    )
    trove.add_journal(_program(directory))
    matmuls = [one for one, _ in LLAMA_CASES[:3]]
    passed, rejected = Outcome.PASSED, Outcome.REJECTED
    results = {
        BEFORE: ((passed, 0.9999, 10_000), (passed, 0.9999, 1_000_000), (rejected, None, None)),
        AFTER: ((rejected, None, None), (passed, 0.9999, 90_000_000), (passed, 0.995, 1_000)),
        ELSEWHERE: (
            (Outcome.OUT_OF_MEMORY, None, None),
            (passed, 0.97, 1),
            (Outcome.NOT_RUN, None, None),
        ),
    }
    runs = (
        executed(BEFORE, "n150", "0.80.0", 1),
        executed(AFTER, "n150", "0.81.0", 2),
        executed(ELSEWHERE, "t3k", "0.81.0", 3),
    )
    for run in runs:
        cases = list(zip(matmuls, results[run.id], strict=True))
        cases += [(one, (passed, 0.999, 5_000 + n)) for n, (one, _) in enumerate(SOFTMAX_CASES)]
        trove.add_attempts(run, attempts_at(run, cases))
    mocked = executed(MOCKED, "n150", "0.81.0", 5, DeviceKind.MOCK)
    some = [(one, (passed, None, 100)) for one, _ in SOFTMAX_CASES[:3]]
    trove.add_attempts(mocked, attempts_at(mocked, some))


def begin_sweep(trove, tried):
    """Begin a sweep over the softmaxes that has come so far."""
    run = replace(executed(SWEEP, "n300", "0.81.0", 4), kind=RunKind.SWEEP, finished_at=None)
    plan = [
        PlannedCase(describe_case(one).case_id, DeviceKind.SHADOW, "n300")
        for one, _ in SOFTMAX_CASES
    ]
    trove.add_sweep(run, Sweep(), plan, session=new_session())
    trove.add_attempts(
        run,
        attempts_at(run, [(one, (Outcome.PASSED, 0.999, 7)) for one, _ in SOFTMAX_CASES[:tried]]),
    )


def fill_web_trove(place, directory):
    """Make a trove with something on every page; journals are made in the directory."""
    with open_trove(place, create=True) as trove:
        _fill(trove, directory / "journals")
        begin_sweep(trove, 20)


def make_web_trove(directory):
    """Make a trove with something on every page, and return its path."""
    path = directory / "web.db"
    fill_web_trove(place_of(str(path)), directory)
    return path


def make_hostile_trove(directory):
    """Make a trove in which every name is an attack, and return its path."""
    path = directory / "hostile.db"
    with open_trove(place_of(str(path)), create=True) as trove:
        for number, text in enumerate(NASTY):
            short = text[:200]
            one = case(text, **{f"{short}=": tensor(32, 32), "text": text, "a": short})
            run = run_of(f"{number}{short}", text, model=short, board=short)
            trove.add_imported(imported(run, [(one, 5)]))
            for day in (1 + number, 11 + number):
                again = executed(f"{day} {short}", short, short, day)
                cases = [(one, (Outcome.RAISED, float("nan"), 1))]
                tried = [replace(each, detail=text) for each in attempts_at(again, cases)]
                trove.add_attempts(again, tried)
        program = Program(directory / "journals", traced_run(f"traced {MARKUP}", model=MARKUP))
        for text in NASTY:
            program.within(text, module=text)
            program.call(f"op {text}", text)
            program.test(text, TestOutcome.FAILED)
        trove.add_journal(program.end())
    return path
