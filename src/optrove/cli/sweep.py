"""The commands for sweeps and their results: sweep, vectors, results, report.

``--json`` prints the object of ``optrove results --json`` (``counts`` add up to ``planned``, those
that were not attempted included) and besides ``store``, ``resumed``, ``interrupted`` and
``exported``: the files that were written. With ``--dry-run``: planned, counts: {"not_attempted"},
left_out: {reason: count}, cases: [{op, case_id, suite, device, board, calls}].

``--json`` prints ``{"name", "planned", "left_out": [{"reason", "count"}], "groups": [{"hardware",
"mesh", "vectors", "file"}], "vectors": [{"id", "op", "suite", "calls", "arguments"}]}``, where
``planned`` and the counts of what was left out add up to all permutations.

``--json`` of results prints one object:

    counts        {outcome: count} and not_attempted; what is not there is zero, and the sum is
                  ``planned``
    views         {xfailed, xpassed: count} of suites called xfail_*, which are to fail
    cases         [as of "optrove replay --json", with suite, xfail, view: the outcome or xfailed
                  or xpassed, took_ns]
    not_attempted [{op, case_id, suite}]
    causes        [{op, outcome, cause, cases, calls, example: case_id, command}]
    ops           [{op, planned, counts, good, ran, calls, pcc, durations}]
    measurements  {name: {count, min, mean, max, undefined: how many are no number}}
    durations     {total_ns, median_ns, longest_ns}, null where none is known
    compare       null without --compare, else as of "optrove check-release --json"
    run_id, kind, source, started_at, finished_at, device, board, ttnn_version, planned, left_out,
    good, ran, pass_share: good of ran, null if nothing ran
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from optrove.cli.options import (
    COULD_NOT,
    FAILED,
    INTERRUPTED,
    case_filters,
    device_options,
    echo_lines,
    json_option,
    running_options,
    store_option,
    table_width,
    tell_recovered,
    watching,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from optrove.model.records import Sweep
    from optrove.report.releases import Comparison, Side
    from optrove.report.results import RunResults
    from optrove.report.sweep import DrawnVectors
    from optrove.sweep.sweeping import Engine, SweepRun
    from optrove.sweep.vectors import Group, SweepPlan
    from optrove.trove.place import Place
    from optrove.trove.query import Asked

    Compared = tuple[Side, Side, Comparison]

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
    from optrove.sweep.sweeping import engine_named, finished
    from optrove.sweep.vectors import SweepPlan
    from optrove.trove.opening import located
    from optrove.trove.query import Asked

    asked = Asked(**{name: given[name] for name in Asked.__slots__ if name in given})
    asked_sweep, place = _sweep(given, asked), located(store)
    _check(asked_sweep, resume=resume, dry_run=dry_run)
    begun = _resumed(store, asked_sweep) if resume else None
    more: dict[str, object] = {"store": str(place), "resumed": begun is not None}
    plan = SweepPlan() if begun else _planned(asked_sweep, asked, store)
    if dry_run:
        _show_plan(plan, as_json=as_json)
        return
    # Without an engine no sweep begins.
    with engine_named(asked_sweep.engine) as execute:
        begun = begun or _begin(place, asked_sweep, plan)
        interrupted = _execute(begun, place, execute, jobs)
    found = finished(place, begun.run)
    more |= {"exported": _export(found, result_dest), "interrupted": interrupted}
    if as_json:
        _print_data(found, store, more)
    else:
        _print_lines(found, store, place, summary=summary)
    sys.exit(INTERRUPTED if interrupted else _exit_code(found))


def _sweep(given: Mapping[str, Any], asked: Asked) -> Sweep:
    """Return the options of the command as they are stored with the run."""
    from optrove.model.records import DeviceKind, Sweep
    from optrove.replay.judge import PEAK_L1, WARM
    from optrove.sweep.planning import IN_PROCESS, filters_of

    path: Path | None = given["file_path"]
    source = given["vector_source"]
    measures = ((WARM, given["perf"]), (PEAK_L1, given["measure_memory"]))
    return Sweep(
        targets=given["targets"],
        filters=filters_of(asked, given["vector_id"]),
        suite=given["suite_name"],
        source="file" if source is None and path is not None else source,
        file=None if path is None else str(path.absolute()),
        engine=given["engine"] if given["vector_id"] is None else IN_PROCESS,
        device_kind=None if given["device"] is None else DeviceKind(given["device"]),
        board=given["mock_board"],
        seed=given["seed"],
        order_seed=given["randomize"],
        timeout_ns=_nanoseconds(given["timeout"]),
        budget_ns=_nanoseconds(given["budget"]),
        measured=tuple(name for name, wanted in measures if wanted),
    )


def _nanoseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)


def _check(asked: Sweep, *, resume: bool, dry_run: bool) -> None:
    filters = [name for name, _ in asked.filters]
    if resume and (dry_run or "vector_id" in filters):
        other = "--dry-run" if dry_run else "--vector-id"
        raise click.UsageError(f"--resume executes what is left of a sweep; leave out {other}")
    if asked.source == "trove" and asked.file is not None:
        raise click.UsageError("--file-path is for --vector-source file or vectors_export")
    if asked.source in ("file", "vectors_export") and filters not in ([], ["vector_id"]):
        raise click.UsageError(f"--{filters[0]} chooses recorded cases, and these are files")
    if (
        asked.board is not None
        and asked.device_kind is not None
        and asked.device_kind.value == "hw"
    ):
        raise click.UsageError("--board is a mock board and --device hw a real one; give one")


def _planned(asked_sweep: Sweep, asked: Asked, store: str | None) -> SweepPlan:
    from optrove.sweep.planning import plan_sweep
    from optrove.trove.opening import reading

    with ExitStack() as stack:
        plan = plan_sweep(
            asked_sweep, asked, lambda: stack.enter_context(reading(store, tell_recovered)), store
        )
    for note in plan.notes:
        click.echo(f"optrove: {note}", err=True)
    return plan


def _resumed(store: str | None, asked: Sweep) -> SweepRun | None:
    from optrove.errors import NoTrove
    from optrove.sweep.sweeping import resumed
    from optrove.trove.opening import reading

    try:
        with reading(store, tell_recovered) as reader:
            found = resumed(reader, asked)
    except NoTrove:
        found = None
    if found is None:
        click.echo("optrove: there is no such sweep to resume; a new one begins", err=True)
        return None
    left = len(found.left.vectors)
    name = f"run {found.run.id[:_ID_SHOWN]} ({found.run.source})"
    click.echo(
        f"optrove: resuming {name}: {left:,} of {left + found.done:,} cases are left", err=True
    )
    return found


def _begin(place: Place, asked: Sweep, plan: SweepPlan) -> SweepRun:
    from optrove.sweep.sweeping import begin

    for where in dict.fromkeys(plan.where[each.case_id] for each in plan.vectors):
        why = "" if where.why is None else f": {where.why}"
        click.echo(f"optrove: on {where}{why}", err=True)
    return begin(place, asked, plan)


def _execute(begun: SweepRun, place: Place, execute: Engine, jobs: int | None) -> bool:
    """Execute what is left, and show progress; return whether the user interrupted it."""
    from optrove.sweep.sweeping import swept

    planned = len(begun.left.vectors)
    if not planned:
        return False
    done = 0
    with watching(planned, "sweeping") as watch:
        attempts = swept(begun, place, execute, jobs=jobs, tell=watch.tell)
        try:
            for each, attempt in attempts:
                done += 1
                watch.advance(passed=_is_well(each.suite or "", attempt.outcome.value))
        except KeyboardInterrupt:
            attempts.close()
            left = planned - done
            watch.tell(f"interrupted, {left:,} cases are left: go on with optrove sweep --resume")
            return True
    if done < planned:
        left = planned - done
        click.echo(f"optrove: the time is over, {left:,} cases were not attempted", err=True)
    return False


def _is_well(suite: str, outcome: str) -> bool:
    return outcome == "passed" or (suite.startswith("xfail_") and outcome != "not_run")


def _exit_code(found: RunResults) -> int:
    if not any(each.ran for each in found.results):
        return COULD_NOT
    return 0 if all(each.passed for each in found.results) else FAILED


def _export(found: RunResults, destination: str | None) -> list[str]:
    """Write the results to files if that is wanted, and return their paths."""
    from optrove.sweep.sweeping import export_results

    if destination in (None, "trove"):
        return []
    files = [str(path) for path in export_results(found, Path(destination or ""))]
    for path in files:
        click.echo(f"optrove: written to {path}", err=True)
    return files


def _show_plan(plan: SweepPlan, *, as_json: bool) -> None:
    from optrove.report.sweep import DrawnCase, plan_data, plan_lines

    cases = [
        DrawnCase(
            op=each.op,
            case_id=each.case_id,
            device=plan.where[each.case_id].device_kind.value,
            board=plan.where[each.case_id].board,
            suite=each.suite,
            calls=each.calls,
        )
        for each in plan.vectors
    ]
    if as_json:
        click.echo(json.dumps(plan_data(cases, plan.left_out), indent=2))
    else:
        echo_lines(plan_lines(cases, plan.left_out, table_width()))


def _print_data(found: RunResults, store: str | None, more: Mapping[str, object]) -> None:
    from optrove.report.results import results_data

    click.echo(json.dumps({**results_data(found, store), **more}, indent=2))


def _print_lines(found: RunResults, store: str | None, place: Place, *, summary: bool) -> None:
    from optrove.report.results import results_lines
    from optrove.report.sweep import summary_lines

    if summary:
        echo_lines(summary_lines(found, table_width()))
    else:
        echo_lines(results_lines(found, store, table_width()))
    click.echo(f"\nkept as run {found.run.id[:_ID_SHOWN]} of {place}")


COMMANDS: Final = (sweep,)


_FILE: Final = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("target", metavar="MODULE|OP")
@click.option("--suite-name", metavar="SUITE", help="Only this suite of a module.")
@click.option("--all-cases", is_flag=True, help="Every combination of what was traced.")
@click.option("--randomize", metavar="SEED", type=int, help="In the order that SEED gives.")
@click.option("--dump-file", is_flag=True, help="Write them to vectors_export/, with a manifest.")
@click.option("-o", "--output", metavar="FILE", type=_FILE, help="Write them to one file.")
@click.option("--board", metavar="NAME", help="Mock board on which a module is imported.")
@case_filters("--recorded-on", "recorded_on")
@store_option
@json_option
def vectors(
    *,
    target: str,
    dump_file: bool,
    output: Path | None,
    store: str | None,
    as_json: bool,
    **asked: Any,
) -> None:
    """Make the vectors of a sweep: of a module of tt-metal's form, or the cases of an op.

    MODULE is a file of Python, or its dotted name below a directory "sweeps" here or above. It is
    imported in a process of its own. Each vector is shown with its id, which is the same each
    time; they are grouped by the hardware and mesh that they were traced on. What is left out is
    counted by its reason.

    "optrove sweep" runs them: those of the module, or of files that are written here.

    \b
    Example:
      optrove vectors sweeps/sigmoid.py
      optrove vectors sweeps/sigmoid.py --suite-name model_traced --dump-file
      optrove vectors softmax --model llama -o softmax.json
    """
    from optrove.sweep.vector_files import EXPORT, export_vectors, write_vectors
    from optrove.sweep.vectors import module_file

    file = module_file(target)
    found = _of_ops(target, store, **asked) if file is None else _of_module(file, store, **asked)
    for note in found.notes:
        click.echo(f"optrove: {note}", err=True)
    if output is not None:
        write_vectors(found, output)
        click.echo(f"optrove: written to {output}", err=True)
    exported = export_vectors(found, Path(EXPORT)) if dump_file else ()
    shown = output is None and not dump_file
    _show(_drawing(target, found, exported, shown=shown), as_json=as_json)


def _of_module(
    file: Path, store: str | None, *, suite_name: str | None, board: str | None, **asked: Any
) -> SweepPlan:
    from optrove.model.records import Sweep
    from optrove.sweep.vectors import module_vectors, shuffled

    seed, all_cases = asked.pop("randomize"), asked.pop("all_cases")
    _refuse_filters(asked)
    request = Sweep(suite=suite_name, board=board)
    return shuffled(module_vectors(file, request, store, all_cases=all_cases), seed)


def _of_ops(
    target: str, store: str | None, *, suite_name: str | None, board: str | None, **asked: Any
) -> SweepPlan:
    from optrove.sweep.vectors import op_vectors, shuffled
    from optrove.trove.opening import reading
    from optrove.trove.query import Asked

    if suite_name is not None:
        raise click.UsageError(f"{target!r} is an op, which has no suites; leave --suite-name out")
    if board is not None:
        raise click.UsageError(
            f"{target!r} is an op, and --board is for modules; choose cases by --recorded-on"
        )
    seed, all_cases = asked.pop("randomize"), asked.pop("all_cases")
    question = Asked(name=target, board=asked.pop("recorded_on"), **asked)
    with reading(store, tell_recovered) as reader:
        found = op_vectors(reader, question, all_cases=all_cases)
    return shuffled(found, seed)


def _refuse_filters(chosen: dict[str, Any]) -> None:
    given = [name for name, value in chosen.items() if value]
    if given:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"{words} chooses recorded cases of ops, and this is a module")


def _drawing(
    target: str, found: SweepPlan, exported: Sequence[Group], *, shown: bool
) -> DrawnVectors:
    from optrove.report.sweep import DrawnGroup, DrawnVector, DrawnVectors

    return DrawnVectors(
        name=found.modules[0].name if found.modules else target,
        vectors=[
            DrawnVector(each.case_id, each.job.case, each.suite, each.calls)
            for each in found.vectors
        ],
        groups=[
            DrawnGroup(
                each.hardware,
                each.mesh_text,
                len(each.vectors),
                None if each.file is None else str(each.file),
            )
            for each in exported or found.groups
        ],
        left_out=found.left_out,
        shown=shown,
    )


def _show(drawing: DrawnVectors, *, as_json: bool) -> None:
    from optrove.report.sweep import vector_data, vector_lines

    if as_json:
        click.echo(json.dumps(vector_data(drawing), indent=2))
    else:
        echo_lines(vector_lines(drawing, table_width()))


VECTOR_COMMANDS: Final = (vectors,)


_NEW_FILE: Final = click.Path(dir_okay=False, writable=True, path_type=Path)
_PATH: Final = click.Path(path_type=Path)
_REPORT: Final = Path("report.html")
_BEGINNING: Final = 1000
_RUN: Final = click.argument("name", metavar="[RUN]", required=False)


@click.command()
@_RUN
@click.option("--compare", metavar="RUN|FILE|TROVE", help="Say what has changed since then.")
@click.option("--junit", metavar="FILE", type=_NEW_FILE, help="Write JUnit XML, for CI.")
@click.option("--markdown", metavar="FILE", type=_NEW_FILE, help="Write a summary for CI.")
@click.option("--export", metavar="PATH", type=_PATH, help="Write JSON as in results_export/.")
@store_option
@json_option
def results(  # noqa: PLR0913 - one for each option of the command
    *,
    name: str | None,
    compare: str | None,
    junit: Path | None,
    markdown: Path | None,
    export: Path | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Tell what came of a sweep or another run of cases.

    RUN is the beginning of a run's id ("optrove runs"), by default the newest run in which cases
    were executed. --compare takes another run, a trove, or a file of --json. Suites called xfail_*
    are to fail: what does is fine, and what passes is told. What the machine was to blame for ("not
    run") and what was not attempted says nothing about an op, and is counted apart. --export writes
    one file if PATH ends in .json, else a file for each op or module into that directory.

    Ends with 0 if all went well, with 1 if not. With --compare, with 1 if anything is worse than
    then: broken, a lower PCC, or, on the same kind of real board, slower.

    \b
    Example:
      optrove results
      optrove results 1f3a9c --compare 77b0e2
      optrove results --junit results.xml --markdown "$GITHUB_STEP_SUMMARY"
    """
    from optrove.report.results import results_data, results_lines, summed
    from optrove.sweep.sweeping import export_results

    found, compared = _found(name, compare, store)
    _write(found, store, compared, {"junit": junit, "markdown": markdown})
    for path in () if export is None else export_results(found, export):
        click.echo(f"optrove: written: {path}", err=True)
    if as_json:
        data = {**results_data(found, store), "compare": _compare_data(compared)}
        click.echo(json.dumps(data, indent=2))
    else:
        echo_lines([*results_lines(found, store, table_width()), *_compare_lines(compared)])
    worse = not summed(found).all_well if compared is None else compared[2].regressions > 0
    sys.exit(FAILED if worse else 0)


@click.command()
@_RUN
@click.option("--compare", metavar="RUN|FILE|TROVE", help="Show what has changed since then.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=_NEW_FILE,
    help=f"Where to write it; what is there is replaced  [default: {_REPORT}]",
)
@store_option
def report(
    *, name: str | None, compare: str | None, output: Path | None, store: str | None
) -> None:
    """Write a run as one HTML page that needs nothing else: to be sent, printed, or opened.

    Totals, every op, how PCC is spread, the slowest cases, failures by cause with ttnn's words and
    a command that replays an example, and what has changed since --compare. Of a traced run: what
    was called, and what its tests said. Without RUN it is of the newest run that executed cases
    (replay, sweep, check-board); in a trove in which nothing was executed, of the newest of all.
    Without -o, an earlier report.html is replaced, and one that is no report of optrove is an
    error.

    \b
    Example:
      optrove report
      optrove report 1f3a9c --compare 77b0e2 -o nightly.html
    """
    from optrove.report.runs import SHORT_ID
    from optrove.report.traced_page import report_of

    path = _REPORT if output is None else output
    replaced = path.exists()
    if replaced and output is None:
        _check_report(path)
    made = report_of(name, compare, store, tell_recovered)
    _put(path, made.html.encode("utf-8", "replace"))
    told = ", in place of what was there" if replaced else ""
    click.echo(f"{path}: {len(made.html) / 1000:,.0f} kB{told}", err=True)
    click.echo(f"of run {made.run.id[:SHORT_ID]}: {made.run.source}", err=True)


def _found(
    name: str | None, compare: str | None, store: str | None
) -> tuple[RunResults, Compared | None]:
    from optrove.report.outcomes import compared_with, results_of, run_meant
    from optrove.trove.opening import reading

    with reading(store, tell_recovered) as reader:
        found = results_of(reader, run_meant(reader, name))
    return found, None if compare is None else compared_with(compare, found, store, tell_recovered)


def _compare_lines(compared: Compared | None) -> list[str]:
    from optrove.report.releases import release_lines

    return [] if compared is None else ["", *release_lines(*compared)]


def _compare_data(compared: Compared | None) -> object:
    from optrove.report.releases import release_data

    return None if compared is None else release_data(*compared)


def _write(
    found: RunResults,
    store: str | None,
    compared: Compared | None,
    paths: dict[str, Path | None],
) -> None:
    """Write the files that are wanted, by the names of their options."""
    from optrove.report.results_files import junit, markdown

    changed = None if compared is None else compared[2]
    made = {
        "junit": lambda: junit(found),
        "markdown": lambda: markdown(found, store, changed).encode("utf-8", "replace"),
    }
    for option, path in paths.items():
        if path is not None:
            _put(path, made[option]())


def _check_report(path: Path) -> None:
    """Raise UnusableResults for a file that is no report, which nobody has said to replace."""
    from optrove.errors import UnusableResults
    from optrove.report.page import is_report

    try:
        with path.open("rb") as stream:
            ours = is_report(stream.read(_BEGINNING))
    except OSError as error:
        raise UnusableResults(
            f"{str(path)!r} cannot be read: {error}; choose another file with -o"
        ) from error
    if not ours:
        raise UnusableResults(
            f"{str(path)!r} is there, and no report of optrove; choose a file with -o FILE, or "
            f"replace it with -o {path}"
        )


def _put(path: Path, content: bytes) -> None:
    from optrove.errors import UnusableResults

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise UnusableResults(
            f"{str(path)!r} cannot be written: {error}; choose another file"
        ) from error


RESULT_COMMANDS: Final = (results, report)
