"""The commands that record calls: trace and import.

``docs/command-line.md`` describes the output of ``--json``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from optrove.cli.options import (
    all_ops_option,
    echo_document,
    json_option,
    log,
    log_recovered,
    nested_option,
    numerics_option,
    say,
    show,
    store_option,
)
from optrove.cli.progress import Pace
from optrove.errors import OptroveError
from optrove.interop.formats import FILES, OWN_FILES
from optrove.model.ops import Counting
from optrove.settings import BOARD, SHADOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from optrove.interop.importing import Addition
    from optrove.model.trove import Fidelity
    from optrove.report.document import Item, Node
    from optrove.tracing.launch import Progress, Request
    from optrove.tracing.results import TraceResult

_REST: Final = "optrove.trace.arguments"
_MAX_VERBATIM: Final = 8
_STDERR: Final = 2


class _WithArguments(click.Command):
    """A command that passes the arguments after ``--`` to its target."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set the arguments after the first ``--`` apart."""
        place = args.index("--") if "--" in args else len(args)
        ctx.meta[_REST] = tuple(args[place + 1 :])
        return super().parse_args(ctx, args[:place])


def _names(_: click.Context, __: click.Parameter, given: Sequence[str]) -> tuple[str, ...]:
    """Return the names in comma-separated lists."""
    return tuple(name.strip() for each in given for name in each.split(",") if name.strip())


_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_DIRECTORY: Final = click.Path(file_okay=False, path_type=Path)


@click.command(cls=_WithArguments)
@click.argument("targets", metavar="TARGET...", nargs=-1)
@store_option
@click.option("--board", metavar="NAME", help="Mock board to run on  [default: OPTROVE_BOARD]")
@click.option("--shadow", is_flag=True, help="Compute numbers on the mock board, with torch.")
@numerics_option
@click.option("--sim", metavar="BOARD", help="Simulated board to run on, with real kernels.")
@click.option(
    "--backend",
    type=click.Choice(("auto", "ttnn", "torch")),
    default="auto",
    help="Framework to trace; auto: ttnn if the target imports it, else torch.",
)
@click.option(
    "--level",
    type=click.Choice(("aten", "api")),
    default="aten",
    help="What is recorded of torch: aten, the operations that the dispatcher runs; api, also the "
    "public functions that call them, which makes torch leave some fast paths.",
)
@click.option("--model", metavar="NAME", help="Name of the model  [default: HF_MODEL]")
@click.option("--include", metavar="OPS", multiple=True, callback=_names, help="Only these ops.")
@click.option("--exclude", metavar="OPS", multiple=True, callback=_names, help="Not these ops.")
@click.option("--jsonl", metavar="FILE", type=_FILE, help="Append one JSON line per call to FILE.")
@click.option("--params-dir", metavar="DIR", type=_DIRECTORY, help="Write one JSON file per call.")
@click.option(
    "--with-values", is_flag=True, help="Write tensor values into the files of --params-dir."
)
@click.option("--sketch", is_flag=True, help="Record statistics of each tensor's values.")
@click.option(
    "--capsule",
    metavar="WHICH",
    multiple=True,
    help="Keep the tensors of these calls: an op, a case, worst, first, every:N, all[:SIZE].",
)
@click.option(
    "--capsule-limit", metavar="SIZE", help="Maximum size of a run's capsules  [default: 1GB]"
)
@click.option("--flow", is_flag=True, help="Record which output became which input.")
@click.option("--keep", is_flag=True, help="Keep the raw journals.")
@click.option(
    "--timeout",
    metavar="S",
    type=click.FloatRange(min=0, min_open=True),
    help="Kill each target after S seconds, its imports included.",
)
@click.option(
    "--from",
    "place",
    metavar="DIR|FILE",
    type=click.Path(path_type=Path),
    help="Add a recording from elsewhere; run nothing.",
)
@all_ops_option
@nested_option
@json_option
@click.pass_context
def trace(ctx: click.Context, /, **given: Any) -> None:
    """Run tests or scripts and record every op call.

    A TARGET is a pytest node id, a test file, a directory of tests, or a Python script. Each runs
    in its own process and gets the arguments after --. A crash, a hang or
    a kill loses no calls, and the call in flight is shown with its arguments.

    OPS are comma-separated names: ttnn.add, ttnn::add or add; * is a wildcard. --from adds and
    summarizes journals, or a file of --jsonl, that were recorded elsewhere.

    The exit code is that of the target (for several, the highest), or 2 if nothing was traced.

    \b
    Example:
      optrove trace tests/test_model.py::test_block --board n300
      optrove trace demo.py --board t3k --jsonl calls.jsonl -- --layers 2
      optrove trace --from .optrove/trove.db.journals/RUN --all-ops
    """
    arguments = ctx.meta[_REST]
    _check(given, arguments)
    shown = []
    for each in _results(given, arguments):
        _show_result(each, given)
        shown.append(each)
        if each.interrupted:
            break
    # With --json, stdout is for the object alone.
    if given["as_json"]:
        counting = Counting(given["all_ops"], given["nested"])
        rows = [each.data(counting) for each in shown]
        click.echo(json.dumps(rows[0] if len(rows) == 1 else rows, indent=2))
    sys.exit(max(each.exit_code for each in shown))


def _check(given: Mapping[str, Any], arguments: Sequence[str]) -> None:
    if given["with_values"] and given["params_dir"] is None:
        raise click.UsageError("--with-values writes into the files of --params-dir: add that")
    if given["place"] is None and not given["targets"]:
        raise click.UsageError("name what to trace: a test, a directory of tests or a script")
    if given["place"] is None:
        return
    # Of the options of a trace, only --jsonl has a meaning for recorded calls.
    running = (
        "board",
        "shadow",
        "sim",
        "model",
        "include",
        "exclude",
        "params_dir",
        "sketch",
        "capsule",
        "capsule_limit",
        "flow",
    )
    unused = [name for name in (*running, "keep", "timeout", "targets") if given[name]]
    if unused or arguments:
        raise click.UsageError(
            f"--from runs nothing, so that {', '.join(unused or ['--'])} cannot be used with it"
        )


def _results(given: Mapping[str, Any], arguments: Sequence[str]) -> Iterator[TraceResult]:
    """Yield the result of each target, or of what was recorded elsewhere."""
    from optrove.tracing.results import from_place

    if given["place"] is not None:
        yield from from_place(given["place"], given["jsonl"], given["store"], log_recovered)
        return
    request = _request(given)
    for name in given["targets"]:
        yield _trace_one(name, arguments, request, alone=len(given["targets"]) == 1)


def _trace_one(
    name: str, arguments: Sequence[str], request: Request, *, alone: bool
) -> TraceResult:
    from optrove.tracing.launch import trace_target
    from optrove.tracing.results import from_failure
    from optrove.tracing.targets import TargetKind, find_target

    try:
        target = find_target(name)
        if not alone:
            log(f"tracing {name}")
        # The line of pytest's dots has not ended.
        report = _progress("\n" if target.kind is TargetKind.PYTEST else "")
        return trace_target(target, arguments, request, report)
    except OptroveError as error:
        if alone:
            raise
        return from_failure(name, error)


def _request(given: Mapping[str, Any]) -> Request:
    from optrove.frameworks.ttnn.board.simulator import find_simulator, simulated_board
    from optrove.frameworks.ttnn.board.table import find_board
    from optrove.tracing.launch import Request
    from optrove.tracing.trace import TraceOptions

    sim = given["sim"]
    if sim and (given["board"] or given["shadow"]):
        raise click.UsageError("--sim names a simulated board, --board a mock one: give one")
    board = None if sim else given["board"] or BOARD.value
    if sim:
        find_simulator(simulated_board(sim))
    if board and given["capsule"] and not given["shadow"] and not SHADOW.is_on:
        raise click.UsageError(
            "--capsule keeps values, and a mock board computes none: add --shadow, or use hardware"
        )
    if given["shadow"] and not board:
        raise click.UsageError("--shadow needs a mock board: add --board NAME")
    jsonl, params_dir = (path and path.absolute() for path in (given["jsonl"], given["params_dir"]))
    recorded = (
        "backend",
        "level",
        "include",
        "exclude",
        "model",
        "sketch",
        "capsule",
        "capsule_limit",
        "flow",
    )
    run = ("store", "shadow", "keep", "timeout")
    return Request(
        TraceOptions(
            jsonl=jsonl,
            params_dir=params_dir,
            params_values=given["with_values"],
            **{name: given[name] for name in recorded},
        ),
        board=find_board(board).name if board else None,
        sim=simulated_board(sim).name if sim else None,
        stdout=_STDERR if given["as_json"] else None,
        **{name: given[name] for name in run},
    )


def _show_result(shown: TraceResult, given: Mapping[str, Any]) -> None:
    nodes = list(shown.document(Counting(given["all_ops"], given["nested"])))
    if nodes and not given["as_json"]:
        click.echo()
        echo_document(nodes)
    if shown.error is not None:
        say(f"Error: {shown.error}")
    for hint in shown.hints:
        say(f"Hint: {hint}")


def _progress(before: str) -> Callable[[Progress], None]:
    """Return a function that prints the progress of a trace as a line now and then.

    The output of the target would tear a progress bar. ``before`` ends a line of the target.
    """
    from rich.console import Console

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    pace = Pace()

    def show_progress(progress: Progress) -> None:
        if pace.is_due():
            console.print(f"{before}optrove: {_progress_text(progress)}", style="dim", markup=False)

    return show_progress


def _progress_text(progress: Progress) -> str:
    minutes, seconds = divmod(int(progress.seconds), 60)
    observed = f"{progress.calls:,} observed" if progress.calls else "no call yet"
    facts = [f"{minutes}:{seconds:02}", observed]
    if round(progress.calls_per_second):
        facts.append(f"{progress.calls_per_second:,.0f}/s")
    if progress.test_id is not None:
        facts.append(f"in {progress.test_id}")
    return ", ".join(facts)


@click.command(
    "import",
    help=f"""Add recordings of other tools to a trove.

    A FILE is one of: {FILES}, {OWN_FILES}.
    The format is detected. Parts that are not understood are kept verbatim, counted and shown with
    their path. All files are added, or none if one of them is bad; adding twice changes nothing.

    \b
    Example:
      optrove import ttnn_operations_master.json
      optrove import calls.jsonl operation_parameters --store team.db
    """,
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--strict", is_flag=True, help="Refuse files with parts that are not understood.")
@store_option
@json_option
def import_files(*, files: Sequence[str], strict: bool, store: str | None, as_json: bool) -> None:
    """Add recordings of other tools to a trove."""
    from optrove.interop.importing import import_all
    from optrove.trove.opening import located

    additions = import_all(store, files, log_recovered, strict=strict)
    place = str(located(store))
    show(
        _import_document(additions, place),
        lambda: {"store": place, "files": [_addition_data(each) for each in additions]},
        as_json=as_json,
    )


def _import_document(additions: Sequence[Addition], place: str) -> Iterator[Node]:
    from optrove.report.document import Paragraph, Section, paragraphs
    from optrove.report.wording import plural

    for each in additions:
        added = each.added
        text = "nothing new: the trove has all of it"
        if added.recordings:
            cases = f"{added.cases_new:,} new cases, {added.cases_known:,} known"
            text = f"added {plural(added.runs, 'run')}, {added.calls:,} calls, {cases}"
        fidelity = () if each.fidelity is None else _fidelity_nodes(each.fidelity)
        yield Section(f"{each.name}: {each.format}", (*fidelity, *paragraphs((text,))))
    yield Paragraph(f"trove: {place}")


def _fidelity_nodes(found: Fidelity) -> Iterator[Node]:
    from optrove.report.document import Item, Items, Paragraph, Section
    from optrove.report.wording import plural

    parts = f"{found.partly:,} with parts kept verbatim + {found.refused:,} refused"
    total = plural(found.configurations, "configuration")
    yield Paragraph(f"{total} = {found.understood:,} understood + {parts}")
    yield Paragraph(plural(found.cases, "different case"))

    def verbatim() -> Iterator[Item]:
        for each in found.verbatim[:_MAX_VERBATIM]:
            yield Item(each.count, each.kind, parts=(Paragraph(f"such as {each.path}"),))

    more = len(found.verbatim) - _MAX_VERBATIM
    if found.verbatim:
        rest = f"{more} more kinds (--json)" if more > 0 else ""
        yield Section("verbatim", (Items(tuple(verbatim()), rest),))
    if found.refusals:
        faults = tuple(Paragraph(f"{path}: {problem}") for path, problem in found.refusals)
        yield Section("refused", faults)
    if found.notes:
        notes = Items(tuple(Item(count, text) for text, count in found.notes))
        yield Section("notes", (notes,))


def _addition_data(addition: Addition) -> dict[str, Any]:
    added, found = addition.added, addition.fidelity
    data: dict[str, Any] = {
        "file": addition.name,
        "format": addition.format,
        "runs": added.runs,
        "calls": added.calls,
        "new_cases": added.cases_new,
        "known_cases": added.cases_known,
    }
    counts = ("configurations", "cases", "understood", "partly", "refused")
    data |= {name: None if found is None else getattr(found, name) for name in counts}
    if found is None:
        return {**data, "verbatim": None, "notes": None, "refusals": None}
    verbatim = [
        {"kind": each.kind, "count": each.count, "path": each.path, "text": each.text}
        for each in found.verbatim
    ]
    refusals = [{"path": path, "problem": problem} for path, problem in found.refusals]
    return {**data, "verbatim": verbatim, "notes": dict(found.notes), "refusals": refusals}


COMMANDS: Final = (trace, import_files)
