"""The commands that change a trove or write what it holds: import, export, merge, rm.

``--json`` prints one object. ``import``: ``{"store", "files": [{"file", "format", "runs", "calls",
"new_cases", "known_cases", "configurations", "cases", "understood", "partly", "refused",
"verbatim": [{"kind", "count", "path", "text"}], "notes": {text: count}}]}``, where all from
``configurations`` on is null for journals and troves. ``export``: ``{"file", "format", "cases",
"calls"}``, and for superset ``{"file", "format", "views", "bundle", "installed"}``. ``merge``:
``{"store", "runs", "cases", "calls"}``. ``rm``: ``{"run", "recordings", "calls", "cases"}``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from optrove.cli.options import json_option, store_option, tell_recovered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.interop.importing import Addition
    from optrove.model.trove import Fidelity

_MOST_VERBATIM: Final = 8


@click.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--strict", is_flag=True, help="Fail where a part is not understood.")
@store_option
@json_option
def import_files(*, files: Sequence[str], strict: bool, store: str | None, as_json: bool) -> None:
    """Add what others have recorded to a trove.

    A FILE is a master JSON of tt-metal (of either generation), op lines (--jsonl, --ops-jsonl), a
    directory of operation parameters, a text export, a directory of journals, or another trove.
    The format is found out. What is not understood is kept as it is spelled, counted and shown
    with its path. All files are added, or none if one of them is bad; adding twice changes nothing.

    \b
    Example:
      optrove import ttnn_operations_master.json
      optrove import calls.jsonl operation_parameters --store team.db
    """
    from optrove.interop.importing import import_all
    from optrove.trove.opening import located

    additions = import_all(store, files, tell_recovered, strict=strict)
    place = str(located(store))
    if as_json:
        rows = [_addition_data(each) for each in additions]
        click.echo(json.dumps({"store": place, "files": rows}, indent=2))
        return
    for each in additions:
        for line in _addition_lines(each):
            click.echo(line)
    click.echo(f"trove: {place}")


@click.command()
@click.argument("file", metavar="FILE")
@click.option(
    "--format",
    "form",
    type=click.Choice(("master", "jsonl", "text", "params", "superset")),
    default="master",
    show_default=True,
    help="What to write.",
)
@click.option("--op", metavar="OP", help="Only this op; * stands for anything.")
@click.option("--model", metavar="NAME", help="Only what this model has called.")
@click.option("--run", metavar="RUN", help="Only this run; the beginning of its id is enough.")
@click.option("--board", metavar="NAME", help="Only what was called on this board.")
@click.option("--scrub", is_flag=True, help="Without paths, host names and user names.")
@click.option("--install", is_flag=True, help="superset: make the views in the trove, too.")
@store_option
@json_option
def export(*, file: str, form: str, store: str | None, as_json: bool, **given: Any) -> None:
    """Write cases, or the calls of runs, to a file.

    \b
    master   the JSON that tt-metal's sweeps load
    text     one line per case, sorted: for git, and for diff
    jsonl    one line per call, as --ops-jsonl writes them
    params   a directory with one JSON file per call
    superset a directory: SQL views for BI tools, a bundle for Apache Superset

    FILE may be - for stdout. A file that is there is replaced when all is written.

    \b
    Example:
      optrove export ttnn_operations_master.json
      optrove export matmul.txt --format text --op matmul --model llama
      optrove export calls.jsonl --format jsonl --run 1f3a
      optrove export public.json --scrub
      optrove export bi --format superset --install
    """
    from optrove.interop.exporting import Selection, export_to
    from optrove.trove.opening import reading

    scrub, install = given.pop("scrub"), given.pop("install")
    chosen = Selection(**given)
    if form == "superset":
        _refuse(scrub or chosen != Selection(), "superset has views of all runs, and no data")
        _export_bi(store, file, install=install, as_json=as_json)
        return
    _refuse(install, "only --format superset has views to install")
    with reading(store, tell_recovered) as reader:
        exported = export_to(reader, file, form, chosen, scrub=scrub)
    data = {"file": file, "format": form, "cases": exported.cases, "calls": exported.calls}
    if as_json:
        click.echo(json.dumps(data, indent=2), err=file == "-")
        return
    text = f"{exported.cases:,} cases, {exported.calls:,} calls: {file}"
    click.echo(text, err=file == "-")


def _refuse(given: object, why: str) -> None:
    """Refuse options that do not go together."""
    if given:
        raise click.UsageError(f"{why}; leave the other options out")


def _export_bi(store: str | None, directory: str, *, install: bool, as_json: bool) -> None:
    from optrove.interop.superset import export_bi

    exported = export_bi(store, directory, tell_recovered, install=install)
    sql, bundle = str(exported.sql), str(exported.bundle)
    if as_json:
        data = {"file": directory, "format": "superset", "views": sql, "bundle": bundle}
        click.echo(json.dumps({**data, "installed": install}, indent=2))
        return
    click.echo(f"views:  {sql} ({'made in the trove' if install else 'make them with --install'})")
    click.echo(f"bundle: {bundle}")
    click.echo(f"import it with: superset import-dashboards -p {bundle}")


@click.command()
@click.argument("troves", metavar="TROVE...", nargs=-1, required=True)
@click.option(
    "-o", "--output", metavar="PATH|URL", required=True, help="Trove that gets all; may exist."
)
@json_option
def merge(*, troves: Sequence[str], output: str, as_json: bool) -> None:
    """Merge troves into one.

    The order does not matter, and merging the same again changes nothing.

    \b
    Example:
      optrove merge laptop.db ci.db -o team.db
    """
    from optrove.trove.merging import merge_into

    merged = merge_into(output, troves, tell_recovered)
    if as_json:
        data = {
            "store": merged.store,
            "runs": merged.added.runs,
            "cases": merged.added.cases_new,
            "calls": merged.added.calls,
        }
        click.echo(json.dumps(data, indent=2))
        return
    added = merged.added
    click.echo(
        f"added {added.runs:,} runs, {added.calls:,} calls, {added.cases_new:,} cases to "
        f"{merged.store}"
    )


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@store_option
@json_option
def rm(*, runs: Sequence[str], store: str | None, as_json: bool) -> None:
    """Remove runs, and the cases that no other run has.

    RUN is the id that "optrove runs" lists; its beginning is enough. All are removed, or none if
    one of them is not found.

    \b
    Example:
      optrove rm 1f3a9c
    """
    from optrove.trove.merging import remove_runs

    removed = remove_runs(store, runs, tell_recovered)
    if as_json:
        rows = [
            {"run": run, "recordings": each.recordings, "calls": each.calls, "cases": each.cases}
            for run, each in removed
        ]
        click.echo(json.dumps(rows, indent=2))
        return
    for run, each in removed:
        click.echo(f"removed {run}: {each.calls:,} calls, {each.cases:,} cases of its own")


COMMANDS: Final = (import_files, export, merge, rm)


def _addition_lines(addition: Addition) -> list[str]:
    added = addition.added
    lines = [f"{addition.name}: {addition.format}"]
    if addition.fidelity is not None:
        lines += _fidelity_lines(addition.fidelity)
    if not added.recordings:
        return [*lines, "  nothing new: the trove has all of it"]
    runs = f"{added.runs:,} run{'' if added.runs == 1 else 's'}"
    cases = f"{added.cases_new:,} new cases, {added.cases_known:,} known"
    return [*lines, f"  added {runs}, {added.calls:,} calls, {cases}"]


def _fidelity_lines(found: Fidelity) -> list[str]:
    parts = f"{found.partly:,} with parts kept verbatim + {found.refused:,} refused"
    lines = [
        f"  {found.configurations:,} configurations = {found.understood:,} understood + {parts}",
        f"  {found.cases:,} different cases",
    ]
    for each in found.verbatim[:_MOST_VERBATIM]:
        lines.append(f"  verbatim: {each.count:,}x {each.kind}")
        lines.append(f"      such as {each.path}")
    if len(found.verbatim) > _MOST_VERBATIM:
        lines.append(f"  verbatim: {len(found.verbatim) - _MOST_VERBATIM} more kinds (--json)")
    return lines + [f"  note: {count:,}x {text}" for text, count in found.notes]


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
        return {**data, "verbatim": None, "notes": None}
    verbatim = [
        {"kind": each.kind, "count": each.count, "path": each.path, "text": each.text}
        for each in found.verbatim
    ]
    return {**data, "verbatim": verbatim, "notes": dict(found.notes)}
