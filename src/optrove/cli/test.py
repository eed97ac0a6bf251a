"""The commands that write tests of recorded cases and shrink failing ones: testgen, shrink.

``docs/command-line.md`` describes the output of ``--json``.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import click

from optrove.cli.options import (
    call_choice,
    case_filters,
    device_options,
    json_option,
    log,
    log_recovered,
    seed_option,
    sequence_options,
    show,
    store_option,
    take_device,
    values_if_any_option,
)
from optrove.errors import OptroveError
from optrove.report.wording import SHORT_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.replay.device_choice import TargetDevice
    from optrove.replay.planning import PlannedJob
    from optrove.replay.sequence import CallChoice
    from optrove.testgen.shrink import Limits, Shrunk
    from optrove.testgen.shrink_sequence import ShrunkSequence

ZIP: Final = ".zip"


@click.command()
@click.argument("names", metavar="OP|CASE...", nargs=-1)
@click.option(
    "-o",
    "--output",
    metavar="DIR|FILE",
    type=click.Path(path_type=Path),
    required=True,
    help="Directory for the files; with --sequence, the file.",
)
@click.option(
    "--sequence", metavar="RUN", help="Write the calls of a run as one straight-line program."
)
@sequence_options
@values_if_any_option
@click.option(
    "--with-values",
    is_flag=True,
    help="Inputs from capsules, in a file beside the test; same as --values capsule.",
)
@click.option("--standalone", is_flag=True, help="One file per case, which needs no pytest.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    help="Only the N most called cases of each op.",
)
@case_filters("--recorded-on", "--board", "board")
@store_option
@json_option
def testgen(  # noqa: PLR0913 - one for each option of the command
    *,
    names: Sequence[str],
    output: Path,
    sequence: str | None,
    call_range: tuple[int | None, int | None] | None,
    test_id: str | None,
    last: int | None,
    values: str | None,
    with_values: bool,
    standalone: bool,
    limit: int | None,
    store: str | None,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Write plain pytest files that repeat recorded calls.

    The files need pytest, ttnn and torch, or for torch operations pytest and torch. Cases are
    grouped by op and by their arguments; each is a parameter set with a readable id. Inputs come
    from a seed, or with --with-values from capsules: each capsule is a parameter set, and its
    tensors are in a file beside the test, FILE.safetensors. If the device computes, results are
    compared with ttnn's golden functions; on a mock board only output specs are checked. Results
    of torch are compared with float64. --standalone writes one file per case, which needs no
    pytest.

    Cases that cannot be written as Python are left out and counted by op and reason; --json lists
    each. So are cases that raised when they were recorded, unless their id is given: then the test
    expects the error. Files that testgen did not write are never replaced.

    --sequence writes the calls of a RUN that was traced with --flow as one program: one statement
    per call, with named tensors. --calls, --test or --last select some of them. Tensors from
    outside have the values of capsules, in a file beside it, or come from a seed.

    \b
    Example:
      optrove testgen --sequence 5f2e81 -o model.py
      optrove testgen matmul -o tests/recorded
      optrove testgen '*' --model llama --limit 20 -o tests/llama
      pytest tests/recorded --optrove-board n300 --optrove-shadow
      optrove testgen 1f3a9c02d4e5 --standalone -o .
    """
    from optrove.replay.capsules import CAPSULE, SEED
    from optrove.replay.capsules import with_values as with_capsules
    from optrove.replay.sequence import CallChoice
    from optrove.testgen.generate import (
        cases_to_test,
        recorded_cases,
        tests_data,
        tests_document,
        write_tests,
    )
    from optrove.trove.opening import located, reading
    from optrove.trove.query import CaseFilters

    stretch = call_choice(call_range, test_id, last)
    if with_values and values == SEED:
        raise click.UsageError("--with-values and --values seed contradict each other")
    values = CAPSULE if with_values else values
    if sequence is not None:
        if names or standalone or limit or any(chosen.values()):
            raise click.UsageError("--sequence names a run: leave out ops, cases and filters")
        _write_sequence(sequence, stretch, output, values, store, as_json=as_json)
        return
    if not names or stretch != CallChoice():
        raise click.UsageError("name ops or cases, or a run with --sequence")
    with reading(store, log_recovered) as reader:
        cases, raised = cases_to_test(reader, names, CaseFilters(**chosen), limit)
    with with_capsules(located(store), cases, values or SEED) as planned:
        generated = write_tests(
            recorded_cases(planned), output, standalone=standalone, raised=raised
        )
    show(
        tests_document(generated, output, standalone=standalone),
        lambda: tests_data(generated, output),
        as_json=as_json,
    )


def _write_sequence(
    name: str,
    choice: CallChoice,
    output: Path,
    values: str | None,
    store: str | None,
    *,
    as_json: bool,
) -> None:
    from optrove.replay.sequence import plan_sequence, with_recorded_values
    from optrove.testgen.generate import program_data, program_document, write_program
    from optrove.testgen.sequence_files import described, writable_program
    from optrove.trove.opening import located, reading

    if output.suffix != ".py":
        raise click.UsageError(f"--sequence writes one program: -o {output} has to end in .py")
    with reading(store, log_recovered) as reader:
        planned = plan_sequence(reader, name, choice)
    with with_recorded_values(located(store), planned, values) as sequence:
        program = writable_program(sequence, described(sequence))
        files = write_program(program, output)
    board = planned.run.environment.board
    show(
        program_document(program, files, board),
        lambda: program_data(program, files),
        as_json=as_json,
    )


@click.command()
@click.argument("name", metavar="CASE|RUN")
@sequence_options
@values_if_any_option
@device_options()
@click.option(
    "--trials",
    metavar="N",
    type=click.IntRange(min=1),
    default=300,
    show_default=True,
    help="Execute at most N cases.",
)
@click.option(
    "--timeout",
    metavar="S",
    type=click.FloatRange(min=0, min_open=True),
    default=600.0,
    show_default=True,
    help="Stop after S seconds with the simplest call so far.",
)
@seed_option
@click.option(
    "-o",
    "--output",
    metavar="DIR|FILE",
    type=click.Path(path_type=Path),
    help="Write a standalone reproducer to DIR, or for calls of a run to FILE.py; FILE.zip has its "
    "values and a text about the software too.",
)
@store_option
@json_option
def shrink(  # noqa: PLR0913 - one for each option of the command
    *,
    name: str,
    call_range: tuple[int | None, int | None] | None,
    test_id: str | None,
    last: int | None,
    values: str | None,
    trials: int,
    timeout: float,
    seed: int,
    output: Path | None,
    store: str | None,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Find the simplest call, or the fewest calls, that fail in the same way.

    It tries fewer arguments, interleaved memory, one chip, and smaller and fewer dimensions. A
    simpler call counts if it has the same outcome and the same message, ignoring numbers. CASE is
    the beginning of a case's id, or an op, which stands for its most called case among those whose
    last stored attempt failed, if there are any. It runs on the same device as in "optrove replay".
    With --values capsule, it has the recorded inputs with which it fails; smaller tensors have the
    values around the most extreme one. If the reproducer cannot be written, the result is still
    shown.

    With --calls, --test or --last, the argument is a RUN that was traced with --flow. Its calls are
    executed as one program, each trial in a new process, with fewer and fewer calls, until none can
    be left out. With -o, the same command continues an interrupted search.

    The exit code is 0 with a result, 2 if the case does not fail.

    \b
    Example:
      optrove check-board bh-galaxy
      optrove shrink 1f3a9c02d4e5 --board bh-galaxy
      optrove shrink 1f3a9c02d4e5 --board bh-galaxy -o .
      optrove shrink addmm --compile inductor
      optrove shrink softmax --device shadow --values capsule -o softmax.zip
      optrove shrink 5f2e81 --calls 100:180 --device shadow -o together.py
    """
    from optrove.replay.capsules import SEED, with_values
    from optrove.replay.device_choice import check_device, group_by_device, resolve_device
    from optrove.replay.planning import case_to_shrink
    from optrove.replay.sequence import CallChoice
    from optrove.testgen.shrink import Limits, shrunk_data, shrunk_document
    from optrove.testgen.shrink import shrink as shrink_case
    from optrove.trove.opening import located, reading
    from optrove.trove.query import CaseFilters

    kind, torch = take_device(chosen)
    target = (*resolve_device(kind, chosen["mock_board"]), torch)
    stretch = call_choice(call_range, test_id, last)
    if stretch != CallChoice() or call_range is not None:
        limits = Limits(trials, timeout)
        _shrink_sequence(name, (stretch, values, seed), target, limits, (output, store), as_json)
        return
    with reading(store, log_recovered) as reader:
        asked = CaseFilters(name=name)
        cases = case_to_shrink(reader, asked, *target[:2], seed=seed)
    check_device(cases, *target)
    file: Path | None = None
    fault: Exception | None = None
    with (
        with_values(located(store), cases, values or SEED) as filled,
        TemporaryDirectory(prefix="optrove-shrink-") as directory,
    ):
        ((where, (planned,)),) = group_by_device(filled, *target).items()
        log(f"case {planned.case_id[:SHORT_ID]} on {where}")
        limits = Limits(trials, timeout)
        shrunk = shrink_case(planned, where, limits, log, directory=Path(directory))
        if output is not None:
            try:
                file = _write_reproducer(planned, shrunk, output, where)
            except (OptroveError, OSError) as error:
                fault = error  # the result took long, so it is shown first
    show(shrunk_document(shrunk, file), lambda: shrunk_data(shrunk, file), as_json=as_json)
    if fault is not None:
        raise fault


def _write_reproducer(
    planned: PlannedJob, shrunk: Shrunk, output: Path, where: TargetDevice
) -> Path:
    """Write the test of a shrunk case to a directory, or as a zip; return its path."""
    from optrove.testgen.generate import reproducer_text, write_reproducer, write_zip

    if output.suffix != ZIP:
        file = write_reproducer(planned, shrunk, output, where.board)[0]
        _log_unless_failing(file, where, shrunk)
        return file

    def write(directory: Path) -> tuple[list[Path], list[str]]:
        files = write_reproducer(planned, shrunk, directory, where.board)
        _log_unless_failing(files[0], where, shrunk)
        return files, reproducer_text(planned.op, shrunk.attempt, where, files[0].name)

    write_zip(output, write)
    return output


def _log_unless_failing(file: Path, where: TargetDevice, shrunk: Shrunk) -> None:
    """Run a written test once, and say it if the test does not fail."""
    from optrove.frameworks.torch.edges import needs_edges
    from optrove.testgen.generate import why_not_failing

    reason = why_not_failing(file, where)
    if reason is None:
        return
    log(f"the written test {reason}")
    if needs_edges(shrunk.attempt.cause or ""):
        log("it asks with random numbers only; optrove replay --inputs edges shows the failure")


def _shrink_sequence(
    name: str,
    asked: tuple[CallChoice, str | None, int],
    target: tuple[Any, str | None, str | None],
    limits: Limits,
    places: tuple[Path | None, str | None],
    as_json: bool,  # noqa: FBT001 - an option of the command
) -> None:
    from optrove.replay.sequence import plan_sequence, with_recorded_values
    from optrove.testgen.shrink_sequence import (
        shrink_sequence,
        shrunk_sequence_data,
        shrunk_sequence_document,
    )
    from optrove.trove.opening import located, reading

    choice, values, seed = asked
    output, store = places
    if output is not None and output.suffix not in (".py", ZIP):
        raise click.UsageError(
            f"the calls become one program: -o {output} has to end in .py or .zip"
        )
    with reading(store, log_recovered) as reader:
        planned = plan_sequence(reader, name, choice, seed=seed)
    trials = None if output is None else output.with_suffix(".trials.jsonl")
    files: list[Path] = []
    fault: Exception | None = None
    with with_recorded_values(located(store), planned, values) as sequence:
        shrunk = shrink_sequence(sequence, target, limits, log, trials=trials)
        if output is not None:
            try:
                files = _write_shrunk_program(shrunk, output)
            except (OptroveError, OSError) as error:
                fault = error  # the result took long, so it is shown first
    show(
        shrunk_sequence_document(shrunk, files),
        lambda: shrunk_sequence_data(shrunk, files),
        as_json=as_json,
    )
    if fault is not None:
        raise fault


def _write_shrunk_program(shrunk: ShrunkSequence, output: Path) -> list[Path]:
    """Write the program of the calls that are left, and its values, or both as a zip."""
    from optrove.model.records import Outcome
    from optrove.testgen.generate import reproducer_text, write_program, write_zip
    from optrove.testgen.sequence_files import described, sequence_program

    outcome, failing = shrunk.attempt.outcome, shrunk.failing.call.op_index
    program = sequence_program(
        shrunk.sequence,
        described(shrunk.sequence),
        checked=outcome is Outcome.NUMERICS,
        specs_of=failing if outcome is Outcome.WRONG_SPEC else None,
        imports=shrunk.imports,
    )
    if output.suffix != ZIP:
        return write_program(program, output)

    def write(directory: Path) -> tuple[list[Path], list[str]]:
        files = write_program(program, directory / f"{output.stem}.py")
        about = (shrunk.failing.op, shrunk.attempt, shrunk.target, files[0].name)
        return files, reproducer_text(*about)

    write_zip(output, write)
    return [output]


COMMANDS: Final = (testgen, shrink)
