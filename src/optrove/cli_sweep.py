"""The command ``optrove sweep``: plan, execute, keep, and show what came of it.

``--json`` prints the object of ``optrove results --json`` (``counts`` add up to ``planned``, those
that were not attempted included) and besides ``store``, ``resumed``, ``interrupted`` and
``exported``: the files that were written. With ``--dry-run``: planned, counts: {"not_attempted"},
left_out: {reason: count}, cases: [{op, case_id, suite, device, board, calls}].
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from optrove.cli_options import case_filters, json_option, store_option, tell_recovered
from optrove.cli_output import echo_lines, table_width
from optrove.cli_running import (
    COULD_NOT,
    FAILED,
    INTERRUPTED,
    device_options,
    running_options,
    watching,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from optrove.flows.sweep_plans import Means, Placed, SweepPlan, Wanted
    from optrove.flows.sweeping import Begun, RunJobs
    from optrove.report.results import RunResults
    from optrove.store.place import Place

_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)?", re.IGNORECASE)
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}
_ID_SHOWN: Final = 12


def _seconds(_: click.Context, __: click.Parameter, given: str | None) -> float | None:
    """Return how many seconds ``90``, ``90s``, ``10m`` or ``1.5h`` are."""
    if given is None:
        return None
    found = _TIME.fullmatch(given.strip())
    if found is None or not float(found[1]):
        raise click.BadParameter("write a time as 90s, 10m or 1.5h")
    return float(found[1]) * _SECONDS[(found[2] or "s").lower()]


@click.command()
@click.argument("targets", metavar="[MODULE|FILE.py|OP...]", nargs=-1)
@click.option("--suite-name", metavar="SUITE", help="Only this suite of a module.")
@click.option(
    "--vector-source",
    type=click.Choice(("trove", "vectors_export", "file")),
    help="Where vectors come from  [default: modules, and the trove]",
)
@click.option(
    "--file-path",
    metavar="PATH",
    type=click.Path(exists=True, path_type=Path),
    help="File or directory of vectors.",
)
@click.option("--vector-id", metavar="ID", help="This one only, in this process, for debuggers.")
@click.option("--result-dest", metavar="WHERE", help="Also as files: results_export, or a PATH.")
@click.option(
    "--engine",
    type=click.Choice(("local", "ray")),
    default="local",
    show_default=True,
    help="Processes here, or a Ray cluster.",
)
@click.option(
    "--budget", metavar="T", callback=_seconds, help="Stop after T, as 10m; the most called first."
)
@click.option("--resume", is_flag=True, help="Go on with a sweep that was interrupted.")
@click.option("--dry-run", is_flag=True, help="Only show what would be executed.")
@click.option("--summary", is_flag=True, help="Only the totals and those of each op.")
@click.option("--perf", is_flag=True, help="Measure how long a warm call takes.")
@click.option("--measure-memory", is_flag=True, help="Measure the peak of L1 on a core.")
@device_options(modules=True)
@click.option("--randomize", metavar="SEED", type=int, help="In the order that SEED gives.")
@running_options
@case_filters("--recorded-on", "board")
@store_option
@json_option
def sweep(  # noqa: PLR0913 - one for each option of the command
    *,
    jobs: int | None,
    resume: bool,
    dry_run: bool,
    summary: bool,
    result_dest: str | None,
    store: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Execute many cases: those of ops, of sweep modules, or of a whole trove.

    MODULE is a file of tt-metal's form or its dotted name below "sweeps"; an OP's recorded cases
    need no module. Without either it is '*': what "optrove ops" lists. --all-ops adds ops that only
    move data, --nested cases that only other ops have called; --dry-run tells how many those are.
    Plan and results are kept as they come: whatever ends a sweep, --resume goes on with it.

    Ends with 0 if all that was attempted is well, with 1 if not, with 2 if nothing could be done.

    \b
    Example:
      optrove sweep --board galaxy
      optrove sweep softmax layer_norm --model llama --budget 10m
      optrove sweep sweeps/sigmoid.py --result-dest results_export
      optrove sweep --resume
    """
    from optrove.flows.stores import located
    from optrove.flows.sweep_plans import SweepPlan
    from optrove.flows.sweeping import engine_named, finished

    wanted, means, place = _wanted(given), _means(given), located(store)
    _check(wanted, means, resume=resume, dry_run=dry_run)
    begun = _resumed(store, wanted, means) if resume else None
    more: dict[str, object] = {"store": str(place), "resumed": begun is not None}
    plan = SweepPlan(()) if begun else _planned(wanted, means, store)
    if dry_run:
        _show_plan(plan, as_json=as_json)
        return
    # An engine that cannot be had leaves no sweep behind.
    with engine_named(means.engine) as execute:
        begun = begun or _begin(place, wanted, means, plan)
        interrupted = _execute(begun, place, execute, jobs)
    found = finished(place, begun.run)
    more |= {"exported": _export(found, result_dest), "interrupted": interrupted}
    if as_json:
        _print_data(found, store, more)
    else:
        _print_lines(found, store, place, summary=summary)
    sys.exit(INTERRUPTED if interrupted else _exit_code(found))


def _wanted(given: Mapping[str, Any]) -> Wanted:
    from optrove.flows.query import Asked
    from optrove.flows.sweep_plans import Wanted

    filters = {name: given[name] for name in Asked.__slots__ if name in given}
    path: Path | None = given["file_path"]
    source = given["vector_source"]
    return Wanted(
        targets=given["targets"],
        asked=Asked(**filters),
        suite=given["suite_name"],
        source="file" if source is None and path is not None else source,
        file=None if path is None else path.absolute(),
        vector_id=given["vector_id"],
        randomize=given["randomize"],
    )


def _means(given: Mapping[str, Any]) -> Means:
    from optrove.flows.planning import How
    from optrove.flows.sweep_plans import HERE, Means
    from optrove.run.measuring import PEAK_L1, WARM

    asked = ((WARM, given["perf"]), (PEAK_L1, given["measure_memory"]))
    return Means(
        device=given["device"],
        board=given["mock_board"],
        engine=given["engine"] if given["vector_id"] is None else HERE,
        how=How(given["seed"], given["timeout"]),
        budget=given["budget"],
        measured=tuple(name for name, wanted in asked if wanted),
    )


def _check(wanted: Wanted, means: Means, *, resume: bool, dry_run: bool) -> None:
    from optrove.flows.sweep_plans import filters_of

    if resume and (dry_run or wanted.vector_id is not None):
        other = "--dry-run" if dry_run else "--vector-id"
        raise click.UsageError(f"--resume executes what is left of a sweep; leave out {other}")
    if wanted.source == "trove" and wanted.file is not None:
        raise click.UsageError("--file-path is for --vector-source file or vectors_export")
    if wanted.source in ("file", "vectors_export"):
        filters = [name for name, _ in filters_of(wanted) if name != "vector_id"]
        if filters:
            raise click.UsageError(f"--{filters[0]} chooses recorded cases, and these are files")
    if means.board is not None and means.device == "hw":
        raise click.UsageError("--board is a mock board and --device hw a real one; give one")


def _planned(wanted: Wanted, means: Means, store: str | None) -> SweepPlan:
    from optrove.flows.stores import reading
    from optrove.flows.sweep_plans import plan_sweep

    with ExitStack() as stack:
        plan = plan_sweep(
            wanted, means, lambda: stack.enter_context(reading(store, tell_recovered)), store
        )
    for note in plan.notes:
        click.echo(f"optrove: {note}", err=True)
    return plan


def _resumed(store: str | None, wanted: Wanted, means: Means) -> Begun | None:
    from optrove.errors import NoTrove
    from optrove.flows.resuming import resumed
    from optrove.flows.stores import reading

    try:
        with reading(store, tell_recovered) as reader:
            found = resumed(reader, wanted, means)
    except NoTrove:
        found = None
    if found is None:
        click.echo("optrove: there is no such sweep to go on with; a new one begins", err=True)
        return None
    left = f"{len(found.left):,} of {len(found.left) + found.done:,} cases are left"
    name = f"run {found.run.id[:_ID_SHOWN]} ({found.run.source})"
    click.echo(f"optrove: going on with {name}: {left}", err=True)
    return found


def _begin(place: Place, wanted: Wanted, means: Means, plan: SweepPlan) -> Begun:
    from optrove.flows.sweeping import begin

    for where in dict.fromkeys(each.where for each in plan.cases):
        why = "" if where.why is None else f": {where.why}"
        click.echo(f"optrove: on {where}{why}", err=True)
    return begin(place, wanted, means, plan)


def _execute(begun: Begun, place: Place, execute: RunJobs, jobs: int | None) -> bool:
    """Execute what is left, and tell how it goes; return whether the user has interrupted it."""
    from optrove.flows.sweeping import swept

    if not begun.left:
        return False
    done = 0
    with watching(len(begun.left), "sweeping") as watch:
        attempts = swept(begun, place, execute, jobs=jobs, tell=watch.tell)
        try:
            for placed, attempt in attempts:
                done += 1
                watch.advance(passed=_is_well(placed, attempt.outcome.value))
        except KeyboardInterrupt:
            attempts.close()
            left = len(begun.left) - done
            watch.tell(f"interrupted, {left:,} cases are left: go on with optrove sweep --resume")
            return True
    if done < len(begun.left):
        left = len(begun.left) - done
        click.echo(f"optrove: the time is over, {left:,} cases were not attempted", err=True)
    return False


def _is_well(placed: Placed, outcome: str) -> bool:
    suite = placed.planned.suite or ""
    return outcome == "passed" or (suite.startswith("xfail_") and outcome != "not_run")


def _exit_code(found: RunResults) -> int:
    if not any(each.ran for each in found.results):
        return COULD_NOT
    return 0 if all(each.passed for each in found.results) else FAILED


def _export(found: RunResults, destination: str | None) -> list[str]:
    """Write the results to files if that is wanted, and return their paths."""
    from optrove.flows.sweep_files import export_results

    if destination in (None, "trove"):
        return []
    files = [str(path) for path in export_results(found, Path(destination or ""))]
    for path in files:
        click.echo(f"optrove: written to {path}", err=True)
    return files


def _show_plan(plan: SweepPlan, *, as_json: bool) -> None:
    from optrove.report.sweep_text import DrawnCase, plan_data, plan_lines

    cases = [
        DrawnCase(
            op=each.planned.op,
            case_id=each.planned.case_id,
            device=each.where.device_kind.value,
            board=each.where.board,
            suite=each.planned.suite,
            calls=each.planned.calls,
        )
        for each in plan.cases
    ]
    if as_json:
        click.echo(json.dumps(plan_data(cases, plan.left_out), indent=2))
    else:
        echo_lines(plan_lines(cases, plan.left_out, table_width()))


def _print_data(found: RunResults, store: str | None, more: Mapping[str, object]) -> None:
    from optrove.report.results_text import results_data

    click.echo(json.dumps({**results_data(found, store), **more}, indent=2))


def _print_lines(found: RunResults, store: str | None, place: Place, *, summary: bool) -> None:
    from optrove.report.results_text import results_lines
    from optrove.report.sweep_text import summary_lines

    if summary:
        echo_lines(summary_lines(found, table_width()))
    else:
        echo_lines(results_lines(found, store, table_width()))
    click.echo(f"\nkept as run {found.run.id[:_ID_SHOWN]} of {place}")


COMMANDS: Final = (sweep,)
