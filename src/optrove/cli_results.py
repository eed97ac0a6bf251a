"""The commands that tell what came of a run: results, report.

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
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from optrove.cli_options import json_option, store_option, tell_recovered
from optrove.cli_output import echo_lines, table_width
from optrove.cli_running import FAILED

if TYPE_CHECKING:
    from optrove.report.releases import Comparison, Side
    from optrove.report.results import RunResults

    Compared = tuple[Side, Side, Comparison]

_FILE: Final = click.Path(dir_okay=False, writable=True, path_type=Path)
_PATH: Final = click.Path(path_type=Path)
_REPORT: Final = Path("report.html")
_BEGINNING: Final = 1000
_RUN: Final = click.argument("name", metavar="[RUN]", required=False)


@click.command()
@_RUN
@click.option("--compare", metavar="RUN|FILE|TROVE", help="Say what has changed since then.")
@click.option("--junit", metavar="FILE", type=_FILE, help="Write JUnit XML, for CI.")
@click.option("--markdown", metavar="FILE", type=_FILE, help="Write a summary for CI.")
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
    from optrove.flows.sweep_files import export_results
    from optrove.report.results import summed
    from optrove.report.results_text import results_data, results_lines

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
    type=_FILE,
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
    from optrove.flows.reporting import report_of
    from optrove.report.runs_text import SHORT_ID

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
    from optrove.flows.outcomes import results_of, run_meant
    from optrove.flows.releases import compared_with
    from optrove.flows.stores import reading

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
    from optrove.report.junit import junit
    from optrove.report.markdown import markdown

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
    from optrove.report.html import is_report

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


COMMANDS: Final = (results, report)
