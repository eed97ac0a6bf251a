"""The commands for sweeps and their results: sweep, vectors, results, report.

``docs/command-line.md`` describes the output of ``--json``.
"""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from optrove.cli.options import (
    case_filters,
    device_options,
    fail_on_option,
    inputs_option,
    json_option,
    log,
    log_recovered,
    nanoseconds,
    resume_option,
    running_options,
    say,
    show,
    store_option,
    take_device,
    values_option,
)
from optrove.cli.progress import case_progress
from optrove.report.wording import SHORT_ID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optrove.model.exit_codes import Reason
    from optrove.model.records import Sweep
    from optrove.report.document import Node
    from optrove.report.releases import ReleaseComparison
    from optrove.report.results import RunResults
    from optrove.sweep.sweeping import Engine, SweepRun
    from optrove.sweep.vectors import SweepPlan
    from optrove.trove.place import Place
    from optrove.trove.query import CaseFilters

_TIME: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)?", re.IGNORECASE)
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}
_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_NEW_FILE: Final = click.Path(dir_okay=False, writable=True, path_type=Path)
_PATH: Final = click.Path(path_type=Path)
_REPORT: Final = Path("report.html")
_BEGINNING: Final = 1000
_RUN: Final = click.argument("name", metavar="[RUN]", required=False)
_COMPARE: Final = click.option(
    "--compare", metavar="RUN|FILE|TROVE", help="Show the changes since these results."
)
_SUITE: Final = click.option("--suite-name", metavar="SUITE", help="Only this suite of a module.")
_RANDOMIZE: Final = click.option("--randomize", metavar="SEED", type=int, help="Shuffle with SEED.")


def _seconds(_: click.Context, __: click.Parameter, given: str | None) -> float | None:
    """Return the seconds of ``90``, ``90s``, ``10m`` or ``1.5h``."""
    if given is None:
        return None
    found = _TIME.fullmatch(given.strip())
    if found is None or not float(found[1]):
        raise click.BadParameter("write a time as 90s, 10m or 1.5h")
    return float(found[1]) * _SECONDS[(found[2] or "s").lower()]


@click.command()
@click.argument("targets", metavar="[MODULE|FILE.py|OP...]", nargs=-1)
@_SUITE
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
@click.option(
    "--vector-id", metavar="ID", help="Execute only this vector, in this process; for debuggers."
)
@click.option("--result-dest", metavar="WHERE", help="Also write files: results_export, or a PATH.")
@click.option(
    "--engine",
    type=click.Choice(("local", "ray")),
    default="local",
    show_default=True,
    help="Processes on this machine, or a Ray cluster.",
)
@click.option(
    "--budget",
    metavar="T",
    callback=_seconds,
    help="Stop after T, such as 10m; most called cases first.",
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    help="At most N cases; for modules, a random sample.",
)
@resume_option
@fail_on_option
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@click.option("--summary", is_flag=True, help="Show only totals, ops and notes.")
@click.option("--perf", is_flag=True, help="Measure the duration of a warm call.")
@click.option("--measure-memory", is_flag=True, help="Measure the peak L1 use of a core.")
@device_options(modules=True)
@_RANDOMIZE
@values_option
@inputs_option
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
    fail_on: frozenset[Reason],
    store: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Execute many cases: those of ops, of sweep modules, or of a whole trove.

    MODULE is a sweep module of tt-metal or its dotted name below "sweeps"; recorded cases of an OP
    need no module. The default is '*': the ops that "optrove ops" lists. --all-ops adds
    ops that only move data, --nested adds cases that only other ops have called; --dry-run counts
    them.
    The plan and each result are stored at once: however a sweep ends, --resume continues it.

    The exit code is 0 if all cases passed or failed as expected, 1 if not, also if some were not
    attempted, 2 if nothing could run. A case that its module skips, or whose recording lost a
    value, does not count; --fail-on chooses what does.

    \b
    Example:
      optrove sweep --board galaxy
      optrove sweep softmax layer_norm --model llama --budget 10m
      optrove sweep sweeps/sigmoid.py --result-dest results_export
      optrove sweep --resume
      optrove sweep --compile inductor
      optrove sweep --device cuda --perf
    """
    from optrove.report.document import Paragraph
    from optrove.report.results import (
        exit_data,
        exit_paragraph,
        results_data,
        results_document,
        title,
        totals_document,
    )
    from optrove.sweep.documents import plan_data, plan_document
    from optrove.sweep.sweeping import engine_named, finished
    from optrove.sweep.vectors import SweepPlan
    from optrove.trove.opening import located
    from optrove.trove.query import CaseFilters

    asked = CaseFilters(**{name: given[name] for name in CaseFilters.__slots__ if name in given})
    asked_sweep, place = _sweep(given, asked), located(store)
    _check(asked_sweep, resume=resume, dry_run=dry_run)
    begun = _resumed(store, asked_sweep) if resume else None
    resumed = begun is not None
    plan = SweepPlan() if begun else _planned(asked_sweep, asked, store)
    if dry_run:
        show(plan_document(plan), lambda: plan_data(plan), as_json=as_json)
        return
    # An engine that is not available leaves no sweep behind.
    with engine_named(asked_sweep.engine) as execute:
        begun = begun or _begin(place, asked_sweep, plan)
        interrupted = _execute(begun, place, execute, jobs)
    found = finished(place, begun.run, fail_on)
    ending = found.exit(fail_on, interrupted=interrupted)
    more = {
        "store": str(place),
        "resumed": resumed,
        "exported": _export(found, result_dest),
        "interrupted": interrupted,
    }
    document = totals_document(found, store) if summary else results_document(found, store)
    stored = Paragraph(f"stored as run {found.run.id[:SHORT_ID]} of {place}")
    show(
        chain([Paragraph(title(found.run))], document, [stored], exit_paragraph(ending)),
        lambda: {**results_data(found, store), **more, **exit_data(ending)},
        as_json=as_json,
    )
    sys.exit(ending.code)


def _sweep(given: dict[str, Any], asked: CaseFilters) -> Sweep:
    """Return the options of the command as they are stored with the run."""
    from optrove.model.records import E2E_NS, DeviceKind, Inputs, Sweep
    from optrove.replay.judge import PEAK_L1
    from optrove.sweep.planning import IN_PROCESS, filters_of

    path: Path | None = given["file_path"]
    source = given["vector_source"]
    kind, torch = take_device(given)
    measures = ((E2E_NS, given["perf"]), (PEAK_L1, given["measure_memory"]))
    return Sweep(
        targets=given["targets"],
        filters=filters_of(asked, given["vector_id"], given["limit"]),
        suite=given["suite_name"],
        source="file" if source is None and path is not None else source,
        file=None if path is None else str(path.absolute()),
        engine=given["engine"] if given["vector_id"] is None else IN_PROCESS,
        device_kind=None if kind is None else DeviceKind(kind),
        torch=torch,
        board=given["mock_board"],
        seed=given["seed"],
        order_seed=given["randomize"],
        timeout_ns=nanoseconds(given["timeout"]),
        budget_ns=nanoseconds(given["budget"]),
        measured=tuple(name for name, wanted in measures if wanted),
        values=given["values"],
        inputs=Inputs(given["inputs"]),
    )


def _check(asked: Sweep, *, resume: bool, dry_run: bool) -> None:
    filters = [name for name, _ in asked.filters]
    if resume and (dry_run or "vector_id" in filters):
        other = "--dry-run" if dry_run else "--vector-id"
        raise click.UsageError(f"--resume executes what is left of a sweep; leave out {other}")
    if asked.source == "trove" and asked.file is not None:
        raise click.UsageError("--file-path is for --vector-source file or vectors_export")
    selecting = [name for name in filters if name not in ("vector_id", "limit")]
    if asked.source in ("file", "vectors_export") and selecting:
        raise click.UsageError(f"--{selecting[0]} selects recorded cases, and these are files")
    on_hardware = asked.device_kind is not None and asked.device_kind.value == "hw"
    if asked.board is not None and on_hardware:
        raise click.UsageError("--board is a mock board and --device hw a real one; give one")


def _planned(asked_sweep: Sweep, asked: CaseFilters, store: str | None) -> SweepPlan:
    from optrove.sweep.planning import plan_sweep
    from optrove.trove.opening import reading

    with ExitStack() as stack:
        plan = plan_sweep(
            asked_sweep, asked, lambda: stack.enter_context(reading(store, log_recovered)), store
        )
    for note in plan.notes:
        log(note)
    return plan


def _resumed(store: str | None, asked: Sweep) -> SweepRun | None:
    from optrove.errors import NoTrove
    from optrove.sweep.sweeping import resumed, resumed_text
    from optrove.trove.opening import reading

    try:
        with reading(store, log_recovered) as reader:
            found = resumed(reader, asked)
    except NoTrove:
        found = None
    if found is None:
        log("there is no such sweep to resume; starting a new one")
        return None
    log(resumed_text(found))
    return found


def _begin(place: Place, asked: Sweep, plan: SweepPlan) -> SweepRun:
    from optrove.sweep.sweeping import begin, sweep_source

    for where in dict.fromkeys(plan.where[each.case_id] for each in plan.vectors):
        why = "" if where.reason is None else f": {where.reason}"
        log(f"on {where}{why}")
    return begin(place, asked, plan, sweep_source(asked))


def _execute(begun: SweepRun, place: Place, execute: Engine, jobs: int | None) -> bool:
    """Execute the remaining cases; return whether the user interrupted it."""
    from optrove.sweep.sweeping import swept

    planned = len(begun.left.vectors)
    if not planned:
        return False
    done = 0
    with case_progress(planned, "sweeping") as progress:
        attempts = swept(begun, place, execute, jobs=jobs, log=progress.log)
        try:
            for attempted in attempts:
                done += 1
                progress.advance(passed=attempted.passed, ran=attempted.ran)
        except KeyboardInterrupt:
            attempts.close()
            left = planned - done
            progress.log(
                f"interrupted, {left:,} cases are left: continue with optrove sweep --resume"
            )
            return True
    if done < planned:
        left = planned - done
        log(f"the budget is used up, {left:,} cases were not attempted")
    return False


def _export(found: RunResults, destination: str | None) -> list[str]:
    """Write the results to files if asked for, and return their paths."""
    from optrove.sweep.sweeping import export_results

    if destination in (None, "trove"):
        return []
    files = [str(path) for path in export_results(found, Path(destination or ""))]
    for path in files:
        log(f"written to {path}")
    return files


@click.command()
@click.argument("target", metavar="MODULE|OP")
@_SUITE
@click.option("--all-cases", is_flag=True, help="Every combination of the traced values.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="At most N vectors.")
@_RANDOMIZE
@click.option("--dump-file", is_flag=True, help="Write vectors_export/, with a manifest.")
@click.option("-o", "--output", metavar="FILE", type=_FILE, help="Write one file.")
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
    """Generate the vectors of a sweep module of tt-metal, or of the cases of an op.

    MODULE is a Python file, or its dotted name below a directory "sweeps" here or in a parent. It
    is imported in its own process. Each vector is shown with its id, which never changes; vectors
    are grouped by the hardware and mesh on which they were traced. Omitted vectors are counted by
    reason.

    "optrove sweep" executes the vectors of modules and of the files that this command writes.

    \b
    Example:
      optrove vectors sweeps/sigmoid.py
      optrove vectors sweeps/sigmoid.py --suite-name model_traced --dump-file
      optrove vectors softmax --model llama -o softmax.json
    """
    from optrove.sweep.documents import vectors_data, vectors_document
    from optrove.sweep.vector_files import EXPORT, export_vectors, write_vectors
    from optrove.sweep.vectors import module_file

    file = module_file(target)
    found = _of_ops(target, store, **asked) if file is None else _of_module(file, store, **asked)
    for note in found.notes:
        log(note)
    if output is not None:
        write_vectors(found, output)
        log(f"written to {output}")
    exported = export_vectors(found, Path(EXPORT)) if dump_file else ()
    listed = output is None and not dump_file
    show(
        vectors_document(target, found, exported, listed=listed),
        lambda: vectors_data(target, found, exported),
        as_json=as_json,
    )


def _of_module(
    file: Path, store: str | None, *, suite_name: str | None, board: str | None, **asked: Any
) -> SweepPlan:
    from optrove.model.records import Sweep
    from optrove.sweep.vectors import VectorRequest, module_vectors, shuffled

    seed, all_cases, limit = asked.pop("randomize"), asked.pop("all_cases"), asked.pop("limit")
    given = [f"--{name.replace('_', '-')}" for name, value in asked.items() if value]
    if given:
        raise click.UsageError(
            f"{', '.join(given)} selects recorded cases of ops, and this is a module"
        )
    request = VectorRequest(store=store, all_cases=all_cases, limit=limit, seed=seed or 0)
    return shuffled(module_vectors(file, Sweep(suite=suite_name, board=board), request), seed)


def _of_ops(
    target: str, store: str | None, *, suite_name: str | None, board: str | None, **asked: Any
) -> SweepPlan:
    from optrove.sweep.planning import limited
    from optrove.sweep.vectors import VectorRequest, op_vectors, shuffled
    from optrove.trove.opening import reading
    from optrove.trove.query import CaseFilters

    if suite_name is not None:
        raise click.UsageError(f"{target!r} is an op, which has no suites; leave --suite-name out")
    if board is not None:
        raise click.UsageError(
            f"{target!r} is an op, and --board is for modules; choose cases by --recorded-on"
        )
    seed, all_cases, limit = asked.pop("randomize"), asked.pop("all_cases"), asked.pop("limit")
    question = CaseFilters(name=target, board=asked.pop("recorded_on"), **asked)
    with reading(store, log_recovered) as reader:
        request = VectorRequest(all_cases=all_cases, limit=limit, seed=seed or 0)
        found = op_vectors(reader, question, request)
    return shuffled(limited([found], limit, seed or 0)[0] if limit else found, seed)


@click.command()
@_RUN
@_COMPARE
@click.option("--junit", metavar="FILE", type=_NEW_FILE, help="Write JUnit XML, for CI.")
@click.option("--markdown", metavar="FILE", type=_NEW_FILE, help="Write a summary for CI.")
@click.option("--export", metavar="PATH", type=_PATH, help="Write JSON as in results_export/.")
@fail_on_option
@store_option
@json_option
def results(  # noqa: PLR0913 - one for each option of the command
    *,
    name: str | None,
    compare: str | None,
    junit: Path | None,
    markdown: Path | None,
    export: Path | None,
    fail_on: frozenset[Reason],
    store: str | None,
    as_json: bool,
) -> None:
    """Show the results of a sweep or another run of cases.

    RUN is the beginning of a run's id ("optrove runs"), by default the newest run that executed
    cases. --compare takes another run, a trove, or a file of --json. Suites called xfail* expect
    failures: a failing case counts as good, and a passing one is shown. Faults of the machine ("not
    run") and cases that were not attempted say nothing about an op, and are counted separately.
    --export writes one file if PATH ends in .json, else a file for each op or module into that
    directory.

    The exit code is 0 if all cases are good, 1 if not, also if some were not attempted, 2 if none
    ran. With --compare, it is 1 if anything is worse than before: broken, a lower PCC, slower on
    the same kind of real board, or not run any more. A case whose recording lost a value does not
    count; --fail-on chooses what does.

    \b
    Example:
      optrove results
      optrove results 1f3a9c --compare 77b0e2
      optrove results --junit results.xml --markdown "$GITHUB_STEP_SUMMARY"
    """
    from optrove.report.document import Paragraph
    from optrove.report.draw_markdown import draw_markdown
    from optrove.report.releases import compare_with, release_data
    from optrove.report.results import (
        exit_data,
        exit_paragraph,
        results_data,
        results_of,
        run_meant,
        title,
    )
    from optrove.report.results_files import junit as junit_xml
    from optrove.sweep.sweeping import export_results
    from optrove.trove.opening import reading

    with reading(store, log_recovered) as reader:
        found = results_of(reader, run_meant(reader, name))
    compared = None
    if compare is not None:
        compared = compare_with(compare, found, store, log_recovered)
    ending = found.exit(fail_on) if compared is None else compared.exit(fail_on)
    if junit is not None:
        _put(junit, junit_xml(found))
    if markdown is not None:
        nodes = chain(_results_nodes(found, store, compared), exit_paragraph(ending))
        text = draw_markdown(title(found.run), nodes)
        _put(markdown, text.encode("utf-8", "replace"))
    for path in () if export is None else export_results(found, export):
        log(f"written to {path}")
    show(
        chain(
            [Paragraph(title(found.run))],
            _results_nodes(found, store, compared),
            exit_paragraph(ending),
        ),
        lambda: {
            **results_data(found, store),
            **exit_data(ending),
            "compare": None if compared is None else release_data(compared),
        },
        as_json=as_json,
    )
    sys.exit(ending.code)


def _results_nodes(
    found: RunResults, store: str | None, compared: ReleaseComparison | None
) -> Iterator[Node]:
    from optrove.report.releases import release_document
    from optrove.report.results import results_document

    yield from results_document(found, store)
    if compared is not None:
        yield from release_document(compared)


@click.command()
@_RUN
@_COMPARE
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=_NEW_FILE,
    help=f"File to write; an existing one is replaced  [default: {_REPORT}]",
)
@store_option
def report(
    *, name: str | None, compare: str | None, output: Path | None, store: str | None
) -> None:
    """Write a report of a run: one HTML page that needs no other file.

    It shows totals, every op, the distribution of PCC, the slowest cases, failures by cause with
    the message of ttnn and a command that replays an example, and the changes since --compare. For
    a traced run, it shows the calls and the results of its tests. The default RUN is the newest
    run that executed cases (replay, sweep, check-board), or the newest run if none did. Without
    -o, report.html is replaced only if it is a report of optrove.

    \b
    Example:
      optrove report
      optrove report 1f3a9c --compare 77b0e2 -o nightly.html
    """
    from optrove.report.report_page import report_of

    path = _REPORT if output is None else output
    replaced = path.exists()
    if replaced and output is None:
        _check_report(path)
    made = report_of(name, compare, store, log_recovered)
    _put(path, made.html.encode("utf-8", "replace"))
    before = ", replaced" if replaced else ""
    say(f"{path}: {len(made.html) / 1000:,.0f} kB{before}")
    say(f"of run {made.run.id[:SHORT_ID]}: {made.run.source}")


def _check_report(path: Path) -> None:
    """Raise UnusableResults for a file that is not a report of optrove."""
    from optrove.errors import UnusableResults
    from optrove.report.draw_html import is_report

    try:
        with path.open("rb") as stream:
            ours = is_report(stream.read(_BEGINNING))
    except OSError as error:
        raise UnusableResults(
            f"{str(path)!r} cannot be read: {error}; choose another file with -o"
        ) from error
    if not ours:
        raise UnusableResults(
            f"{str(path)!r} exists and is not a report of optrove; choose a file with -o FILE, or "
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


COMMANDS: Final = (sweep, vectors, results, report)
