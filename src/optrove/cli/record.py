"""The command ``optrove trace``: parse, run the flow for each target, show what it returns.

``--json`` prints one object, or a list of them when there are several targets or runs:

    target, kind        what was named; "pytest", "script", or with --from "journals", "lines"
    source, run_id      what was run, with the model, and the id of the run; null if unknown
    model, board        their names or null
    device              "hw", "mock", "shadow", "host", or null if unknown
    exit_code           what optrove ends with for this target
    ending              how the process ended, as text; null with --from
    signal, timed_out, interrupted      the number of the signal or null; two booleans
    seconds             how long the process ran, or null
    calls, cases, new_cases, known_cases        as "optrove ops" counts them
    left_out            {"data_movement" and "nested": {"ops", "cases", "calls"}}: the rest
    tests               {outcome: count}
    accounting          {"observed", "new", "repeated", "filtered": {reason: count},
                        "untraceable": {reason: count}}; the first is the sum of all others
    ops                 [{"op", "unique", "executed", "nested", "raised", "hidden"}], most executed
                        first: its cases, its calls, and beyond them those that other ops made
    in_flight           [{"op", "arguments": {name: text}, "case", "case_id", "call_site", "test",
                        "process", "op_index"}], the calls that had not ended, outermost first
    faults              {text: count}, what went wrong in the tracer itself
    lost                calls that could not be recorded, as on a full disk
    processes, unclosed how many processes there were, and how many did not end in order
    sketches            {"calls", "tensors", "omitted": {reason: count}}
    store, journals, jsonl, params_dir  places of what is kept, or null
    error               why there is nothing, or null
    hints               [what to try where a board or its numbers are missing]
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from optrove.cli.options import (
    all_ops_option,
    json_option,
    nested_option,
    store_option,
    tell_recovered,
)
from optrove.errors import OptroveError
from optrove.model.ops import Counting
from optrove.settings import read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from optrove.tracing.launch import Progress, Request
    from optrove.tracing.results import Shown

_REST: Final = "optrove.trace.arguments"
_LINE_SECONDS: Final = 10.0
_STDERR: Final = 2


class _WithArguments(click.Command):
    """A command that hands what follows ``--`` on, to whatever it runs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what follows the first ``--`` apart."""
        place = args.index("--") if "--" in args else len(args)
        ctx.meta[_REST] = tuple(args[place + 1 :])
        return super().parse_args(ctx, args[:place])


def _names(_: click.Context, __: click.Parameter, given: Sequence[str]) -> tuple[str, ...]:
    """Return the names of comma lists."""
    return tuple(name.strip() for each in given for name in each.split(",") if name.strip())


_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_DIRECTORY: Final = click.Path(file_okay=False, path_type=Path)


@click.command(cls=_WithArguments)
@click.argument("targets", metavar="TARGET...", nargs=-1)
@store_option
@click.option("--board", metavar="NAME", help="Mock board to run on  [default: OPTROVE_BOARD]")
@click.option("--shadow", is_flag=True, help="Numbers on the mock board, by torch.")
@click.option(
    "--backend",
    type=click.Choice(("auto", "ttnn", "torch")),
    default="auto",
    help="Whose ops; auto: ttnn's where it gets imported, else torch's.",
)
@click.option("--model", metavar="NAME", help="Name of the model  [default: HF_MODEL]")
@click.option("--include", metavar="OPS", multiple=True, callback=_names, help="Only these ops.")
@click.option("--exclude", metavar="OPS", multiple=True, callback=_names, help="Not these ops.")
@click.option("--jsonl", metavar="FILE", type=_FILE, help="Append one JSON line per call.")
@click.option("--params-dir", metavar="DIR", type=_DIRECTORY, help="One JSON file per call.")
@click.option("--with-values", is_flag=True, help="Values of tensors in --params-dir's files.")
@click.option("--sketch", is_flag=True, help="Record how each tensor's numbers are spread.")
@click.option("--keep", is_flag=True, help="Keep the raw journals.")
@click.option(
    "--timeout",
    metavar="S",
    type=click.FloatRange(min=0, min_open=True),
    help="End each target after S seconds.",
)
@click.option(
    "--from",
    "place",
    metavar="DIR|FILE",
    type=click.Path(path_type=Path),
    help="Sum up what was traced elsewhere.",
)
@all_ops_option
@nested_option
@json_option
@click.pass_context
def trace(ctx: click.Context, /, **given: Any) -> None:
    """Run tests or scripts and record every op call that they make.

    A TARGET is a pytest node id, a test file, a directory of tests, or a Python script. Each runs
    in a process of its own, and what follows -- goes to it. After a crash, a hang or a kill, all
    calls are there, and the one in flight is named with its arguments.

    OPS are comma lists of names: ttnn.add, ttnn::add, add, or with * for anything. --from sums up
    journals, or a file of --jsonl, that were made elsewhere.

    Ends with the target's own exit code, the highest of several; 2 where nothing was traced.

    \b
    Example:
      optrove trace tests/test_model.py::test_block --board n300
      optrove trace demo.py --board t3k --jsonl calls.jsonl -- --layers 2
      optrove trace --from .optrove/trove.db.journals/RUN --all-ops
    """
    options = Options(**given)
    _check(options, ctx.meta[_REST])
    # With --json, stdout is for the object alone.
    shown = _shown(options, ctx.meta[_REST])
    if options.as_json:
        rows = [each.data() for each in shown]
        click.echo(json.dumps(rows[0] if len(rows) == 1 else rows, indent=2))
    sys.exit(max(each.exit_code for each in shown))


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command, as click gives them."""

    targets: tuple[str, ...]
    store: str | None
    board: str | None
    shadow: bool
    backend: str
    model: str | None
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    jsonl: Path | None
    params_dir: Path | None
    with_values: bool
    sketch: bool
    keep: bool
    timeout: float | None
    place: Path | None
    all_ops: bool
    nested: bool
    as_json: bool


def _check(options: Options, arguments: Sequence[str]) -> None:
    if options.with_values and options.params_dir is None:
        raise click.UsageError("--with-values writes into the files of --params-dir: add that")
    if options.place is None and not options.targets:
        raise click.UsageError("name what to trace: a test, a directory of tests or a script")
    if options.place is None:
        return
    # Of the options of a trace only --jsonl means something for what was recorded already.
    running = ("board", "shadow", "model", "include", "exclude", "params_dir", "sketch")
    unused = [name for name in (*running, "keep", "timeout", "targets") if getattr(options, name)]
    if unused or arguments:
        raise click.UsageError(
            f"--from runs nothing, so that {', '.join(unused or ['--'])} cannot be used with it"
        )


def _shown(options: Options, arguments: Sequence[str]) -> list[Shown]:
    """Do what is asked for, and show each result as soon as it is there."""
    from optrove.tracing.results import from_place

    if options.place is not None:
        given = (options.place, options.jsonl, options.store)
        shown = list(from_place(*given, tell_recovered))
        for each in shown:
            _show(each, options)
        return shown
    request = _request(options)
    shown = []
    for name in options.targets:
        result = _trace_one(name, arguments, request, alone=len(options.targets) == 1)
        _show(result, options)
        shown.append(result)
        if result.interrupted:
            break
    return shown


def _trace_one(name: str, arguments: Sequence[str], request: Request, *, alone: bool) -> Shown:
    from optrove.tracing.launch import trace_target
    from optrove.tracing.results import from_failure, from_traced
    from optrove.tracing.targets import TargetKind, find_target

    try:
        target = find_target(name)
        if not alone:
            click.echo(f"optrove: tracing {name}", err=True)
        # Behind the dots of pytest, whose line has not ended.
        tell = _teller("\n" if target.kind is TargetKind.PYTEST else "")
        return from_traced(trace_target(target, arguments, request, tell), request)
    except OptroveError as error:
        if alone:
            raise
        return from_failure(name, error)


def _request(options: Options) -> Request:
    from optrove.frameworks.ttnn.board.table import find_board
    from optrove.tracing.launch import Request
    from optrove.tracing.trace import Outputs

    board = options.board or read_settings().board
    if options.shadow and not board:
        raise click.UsageError("--shadow needs a mock board: add --board NAME")
    jsonl, params_dir = (path and path.absolute() for path in (options.jsonl, options.params_dir))
    return Request(
        store=options.store,
        board=find_board(board).name if board else None,
        shadow=options.shadow,
        backend=options.backend,
        model=options.model,
        include=options.include,
        exclude=options.exclude,
        outputs=Outputs(jsonl, params_dir, values=options.with_values, sketch=options.sketch),
        keep=options.keep,
        timeout=options.timeout,
        stdout=_STDERR if options.as_json else None,
    )


def _show(shown: Shown, options: Options) -> None:
    if not options.as_json:
        for line in shown.lines(Counting(options.all_ops, options.nested)):
            click.echo(line)
    if shown.error is not None:
        click.echo(f"Error: {shown.error}", err=True)
    for hint in shown.hints:
        click.echo(f"Hint: {hint}", err=True)


def _teller(before: str) -> Callable[[Progress], None]:
    """Return what tells a person who waits how far a trace is: a line now and then.

    A line that is drawn anew in its place would be torn by the output of the target. ``before``
    ends a line that the target has begun.
    """
    from rich.console import Console

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    told = time.monotonic()

    def tell(progress: Progress) -> None:
        nonlocal told
        if time.monotonic() - told >= _LINE_SECONDS:
            told = time.monotonic()
            console.print(before + _progress(progress), style="dim", markup=False)

    return tell


def _progress(progress: Progress) -> str:
    minutes, seconds = divmod(int(progress.seconds), 60)
    facts = [f"{minutes}:{seconds:02}", "no call yet"]
    if progress.calls:
        facts[1:] = [f"{progress.calls:,} observed"]
    if round(progress.calls_per_second):
        facts.append(f"{progress.calls_per_second:,.0f}/s")
    if progress.test_id is not None:
        facts.append(f"in {progress.test_id}")
    return f"optrove: {', '.join(facts)}"
