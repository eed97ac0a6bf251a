"""The commands about files of model configurations: config show, diff, check.

``--json`` prints a list:

show     file, mode, paths (with ranges), entries: how many, value: as optrove.to_jsonable has it
diff     a, b, equal, changes: [{paths, arguments: [{path, a, b}]}], for each pair
check    file, signatures: whether ttnn was there to be asked, faults: [{path, problem}]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from optrove.cli.options import echo_lines, json_option, table_width

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from optrove.runconfig.files import Checked, Inspected

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER: Final = click.Path(exists=True, file_okay=False, path_type=Path)
_DIFFERS: Final = 1
_FAULTY: Final = 1

files_argument = click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_FILE)


@click.group()
def config() -> None:
    """Show, compare and check files of model configurations (optrove.runconfig).

    FILE is what optrove.runconfig.save_config writes, or save_configs for prefill and decode; the
    JSON of optrove.to_jsonable(config) does as well. No device is needed.

    \b
    Example:
      optrove config show decode.json
      optrove config diff pair.json
      optrove config check pair.json --weights weights/mlp
    """


@config.command(short_help="Show configurations as trees.")
@files_argument
@json_option
def show(*, files: Sequence[Path], as_json: bool) -> None:
    """Show configurations as trees; layers with the same entries stand together.

    \b
    Example:
      optrove config show decode.json
    """
    from optrove.report.configs import tree_lines
    from optrove.runconfig.files import gathered, inspect

    found = [each for file in files for each in inspect(file)]
    if as_json:
        click.echo(json.dumps([row for each in found for row in _rows(each)], indent=2))
        return
    for each in found:
        if len(found) > 1:
            click.echo(f"{each.name}:")
        echo_lines(tree_lines(each.entries, gathered, table_width()))


def _rows(inspected: Inspected) -> Iterator[dict[str, Any]]:
    from optrove.report.configs import alike_entries
    from optrove.runconfig.files import gathered
    from optrove.serializer.wire import encode

    for value, paths in alike_entries(inspected.entries).items():
        yield {
            "file": str(inspected.file),
            "mode": inspected.mode or None,
            "paths": gathered(paths),
            "entries": len(paths),
            "value": encode(value),
        }


@config.command(short_help="Compare files, or the parts of one.")
@click.argument("files", metavar="FILE [FILE]", nargs=-1, required=True, type=_FILE)
@click.option("--layers", metavar="A B", type=(str, str), help="Two layers of each configuration.")
@click.option("--paths", metavar="A B", type=(str, str), help="Two parts of each configuration.")
@json_option
def diff(
    *,
    files: Sequence[Path],
    layers: tuple[str, str] | None,
    paths: tuple[str, str] | None,
    as_json: bool,
) -> None:
    """Compare configurations: two files, the prefill and decode of one, or two of its layers.

    Ends with 1 if they differ.

    \b
    Example:
      optrove config diff pair.json
      optrove config diff old.json new.json
      optrove config diff decode.json --layers 3 7
      optrove config diff decode.json --paths model.layers.3.mlp model.layers.7.mlp
    """
    from optrove.report.configs import change_lines, entry_changes
    from optrove.runconfig.files import compared, gathered

    differs = False
    rows = []
    for a, b in compared(files, layers, paths):
        changes = entry_changes(a.entries, b.entries, gathered)
        differs = differs or bool(changes)
        rows.append(
            {
                "a": a.name,
                "b": b.name,
                "equal": not changes,
                "changes": [
                    {
                        "paths": list(change.paths),
                        "arguments": [
                            {"path": part.path, "a": part.a, "b": part.b} for part in change.changes
                        ],
                    }
                    for change in changes
                ],
            }
        )
        if not as_json:
            told = "differ" if changes else "are equal"
            click.echo(f"{a.name} and {b.name} {told}")
            echo_lines(change_lines(changes))
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    sys.exit(_DIFFERS if differs else 0)


@config.command(short_help="Check ranges, arguments and weights.")
@files_argument
@click.option("--weights", metavar="DIR", type=_FOLDER, help="Hold its weight files against them.")
@json_option
def check(*, files: Sequence[Path], weights: Path | None, as_json: bool) -> None:
    """Check configurations: ranges, arguments against ttnn's signatures, weights.

    Ends with 1 if something is wrong; all of it is listed, each with its path.

    \b
    Example:
      optrove config check prefill.json decode.json
      optrove config check pair.json --weights weights/mlp
    """
    from optrove.runconfig.files import check_files

    found = check_files(files, weights)
    if as_json:
        click.echo(json.dumps([_checked(each) for each in found], indent=2))
    else:
        for each in found:
            told = f"{len(each.faults)} faults" if each.faults else "good"
            click.echo(f"{each.file}: {told}")
            echo_lines(f"  {fault}" for fault in each.faults)
    if not all(each.signatures for each in found):
        click.echo(
            "optrove: ttnn is not installed here, so arguments were not held against its "
            "signatures; install optrove[ttnn]",
            err=True,
        )
    sys.exit(_FAULTY if any(each.faults for each in found) else 0)


def _checked(checked: Checked) -> dict[str, Any]:
    return {
        "file": str(checked.file),
        "signatures": checked.signatures,
        "faults": [{"path": fault.path, "problem": fault.problem} for fault in checked.faults],
    }


COMMANDS: Final = (config,)
