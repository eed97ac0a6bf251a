"""The command ``optrove vectors``: what a sweep of a module or an op would execute.

``--json`` prints ``{"name", "planned", "left_out": [{"reason", "count"}], "groups": [{"hardware",
"mesh", "vectors", "file"}], "vectors": [{"id", "op", "suite", "calls", "arguments"}]}``, where
``planned`` and the counts of what was left out add up to all permutations.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from optrove.cli_options import case_filters, json_option, store_option, tell_recovered
from optrove.cli_output import echo_lines, table_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.flows.vector_files import Exported
    from optrove.flows.vectors import VectorSet
    from optrove.report.vectors_text import DrawnVectors

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
    from optrove.flows.vector_files import EXPORT, export_vectors, write_vectors
    from optrove.flows.vectors import module_file

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
) -> VectorSet:
    from optrove.flows.vectors import ModuleRequest, vectors_of

    order = {name: asked.pop(name) for name in ("randomize", "all_cases")}
    _refuse_filters(asked)
    return vectors_of(ModuleRequest(file, suite_name, board=board, store=store, **order))


def _of_ops(
    target: str, store: str | None, *, suite_name: str | None, board: str | None, **asked: Any
) -> VectorSet:
    from optrove.flows.planning import How
    from optrove.flows.query import Asked
    from optrove.flows.stores import reading
    from optrove.flows.vectors import op_vectors, shuffled

    if suite_name is not None:
        raise click.UsageError(f"{target!r} is an op, which has no suites; leave --suite-name out")
    if board is not None:
        raise click.UsageError(
            f"{target!r} is an op, and --board is for modules; choose cases by --recorded-on"
        )
    seed, all_cases = asked.pop("randomize"), asked.pop("all_cases")
    question = Asked(name=target, board=asked.pop("recorded_on"), **asked)
    with reading(store, tell_recovered) as reader:
        found = op_vectors(reader, question, How(), all_cases=all_cases)
    return shuffled(found, seed)


def _refuse_filters(chosen: dict[str, Any]) -> None:
    given = [name for name, value in chosen.items() if value]
    if given:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise click.UsageError(f"{words} chooses recorded cases of ops, and this is a module")


def _drawing(
    target: str, found: VectorSet, exported: Sequence[Exported], *, shown: bool
) -> DrawnVectors:
    from optrove.report.vectors_text import DrawnGroup, DrawnVector, DrawnVectors

    groups = [
        DrawnGroup(each.needs.hardware, each.needs.mesh_text, each.vectors, str(each.file))
        for each in exported
    ] or [
        DrawnGroup(each.needs.hardware, each.needs.mesh_text, len(each.members))
        for each in found.groups
    ]
    return DrawnVectors(
        name=target if found.module is None else found.module.name,
        vectors=[
            DrawnVector(each.case_id, each.job.case, each.suite, each.calls)
            for each in found.planned
        ],
        groups=groups,
        left_out=found.left_out,
        shown=shown,
    )


def _show(drawing: DrawnVectors, *, as_json: bool) -> None:
    from optrove.report.vectors_text import vector_data, vector_lines

    if as_json:
        click.echo(json.dumps(vector_data(drawing), indent=2))
    else:
        echo_lines(vector_lines(drawing, table_width()))


COMMANDS: Final = (vectors,)
