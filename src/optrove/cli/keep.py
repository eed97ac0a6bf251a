"""The commands that export, merge and remove: export, merge, rm.

``docs/command-line.md`` describes the output of ``--json``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from optrove.cli.options import (
    json_option,
    log_recovered,
    model_option,
    op_option,
    recorded_on,
    run_option,
    show,
    store_option,
)
from optrove.interop.formats import FORMATS, SUPERSET, WRITTEN

if TYPE_CHECKING:
    from collections.abc import Sequence

_FORMAT_LINES: Final = "\n    ".join(
    (
        *(f"{each.name:14} {each.about}" for each in FORMATS if each.is_written),
        f"{SUPERSET:14} a directory: SQL views, and a bundle for Apache Superset",
    )
)


@click.command(
    help=f"""Write cases, or the calls of runs, to a file.

    \b
    {_FORMAT_LINES}

    FILE may be - for stdout. An existing file is replaced when the export is complete.

    \b
    Example:
      optrove export ttnn_operations_master.json
      optrove export matmul.txt --op matmul --model llama
      optrove export calls.jsonl --run 1f3a
      optrove export public.json --scrub
      optrove export bi --format superset --install
    """
)
@click.argument("file", metavar="FILE")
@click.option(
    "--format",
    "form",
    type=click.Choice(WRITTEN),
    help="What to write  [default: by the suffix of FILE: .json master, .jsonl jsonl, .txt text]",
)
@op_option
@model_option
@run_option
@recorded_on("--board")
@click.option("--scrub", is_flag=True, help="Remove paths, host names and user names.")
@click.option("--install", is_flag=True, help="superset: also create the views in the trove.")
@store_option
@json_option
def export(*, file: str, form: str | None, store: str | None, as_json: bool, **given: Any) -> None:
    """Write cases, or the calls of runs, to a file."""
    from optrove.interop.exporting import export_to, format_of
    from optrove.trove.opening import reading
    from optrove.trove.query import CaseFilters

    scrub, install = given.pop("scrub"), given.pop("install")
    chosen = CaseFilters(**given)
    form = form or format_of(file)
    if form == SUPERSET:
        _refuse(scrub or chosen != CaseFilters(), "superset has views of all runs, and no data")
        _export_bi(store, file, install=install, as_json=as_json)
        return
    _refuse(install, "only --format superset has views to install")
    with reading(store, log_recovered) as reader:
        exported = export_to(reader, file, form, chosen, scrub=scrub)
    data = {"file": file, "format": form, "cases": exported.cases, "calls": exported.calls}
    data["notes"] = list(exported.notes)
    text = "\n".join(
        (f"{exported.cases:,} cases, {exported.calls:,} calls: {file}", *exported.notes)
    )
    click.echo(json.dumps(data, indent=2) if as_json else text, err=file == "-")


def _refuse(given: object, why: str) -> None:
    """Refuse options that do not go together."""
    if given:
        raise click.UsageError(f"{why}; leave the other options out")


def _export_bi(store: str | None, directory: str, *, install: bool, as_json: bool) -> None:
    from optrove.interop.superset import export_bi
    from optrove.report.document import paragraphs

    exported = export_bi(store, directory, log_recovered, install=install)
    sql, bundle = str(exported.sql), str(exported.bundle)
    data = {"file": directory, "format": SUPERSET, "views": sql, "bundle": bundle}
    views = "created in the trove" if install else "create them with --install"
    texts = (
        f"views:  {sql} ({views})",
        f"bundle: {bundle}",
        f"import it with: superset import-dashboards -p {bundle}",
    )
    show(paragraphs(texts), lambda: {**data, "installed": install}, as_json=as_json)


@click.command()
@click.argument("troves", metavar="TROVE...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    metavar="PATH|URL",
    required=True,
    help="Trove to merge into; created if it does not exist.",
)
@json_option
def merge(*, troves: Sequence[str], output: str, as_json: bool) -> None:
    """Merge troves into one.

    The order does not matter, and merging again changes nothing.

    \b
    Example:
      optrove merge laptop.db ci.db -o team.db
    """
    from optrove.report.document import Paragraph
    from optrove.trove.merging import merge_into

    added = merge_into(output, troves, log_recovered)
    runs, cases, calls = added.runs, added.cases_new, added.calls
    show(
        [Paragraph(f"added {runs:,} runs, {calls:,} calls, {cases:,} cases to {output}")],
        lambda: {"store": output, "runs": runs, "cases": cases, "calls": calls},
        as_json=as_json,
    )


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@store_option
@json_option
def rm(*, runs: Sequence[str], store: str | None, as_json: bool) -> None:
    """Remove runs, and the cases that no other run contains.

    RUN is the id that "optrove runs" lists; its beginning is enough. All are removed, or none if
    one of them is not found.

    \b
    Example:
      optrove rm 1f3a9c
    """
    from optrove.report.document import paragraphs
    from optrove.trove.merging import remove_runs

    removed = remove_runs(store, runs, log_recovered)
    show(
        paragraphs(
            f"removed {run}: {each.calls:,} calls, {each.cases:,} cases that no other run has"
            for run, each in removed
        ),
        lambda: [
            {"run": run, "recordings": each.recordings, "calls": each.calls, "cases": each.cases}
            for run, each in removed
        ],
        as_json=as_json,
    )


COMMANDS: Final = (export, merge, rm)
