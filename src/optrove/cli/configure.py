"""The commands for files of model configurations: config show, diff, check.

``docs/command-line.md`` describes the output of ``--json``.
"""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from optrove.cli.options import json_option, log
from optrove.cli.options import show as show_answer
from optrove.model.exit_codes import FAILED

if TYPE_CHECKING:
    from collections.abc import Sequence

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER: Final = click.Path(exists=True, file_okay=False, path_type=Path)

files_argument = click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_FILE)


@click.group()
def config() -> None:
    """Show, compare and check files of model configurations (optrove.runconfig).

    FILE was written by optrove.runconfig.save_config, or by save_configs for prefill and decode, or
    is the JSON of optrove.to_jsonable(config). No device is needed.

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
    """Show configurations as trees; layers with equal entries are grouped.

    \b
    Example:
      optrove config show decode.json
    """
    from optrove.cli.config_documents import configs_data, configs_document
    from optrove.runconfig.files import inspect

    found = [each for file in files for each in inspect(file)]
    show_answer(configs_document(found), lambda: configs_data(found), as_json=as_json)


@config.command(short_help="Compare files, or the parts of one.")
@click.argument("files", metavar="FILE [FILE]", nargs=-1, required=True, type=_FILE)
@click.option("--layers", metavar="A B", type=(str, str), help="Compare two layers.")
@click.option("--paths", metavar="A B", type=(str, str), help="Compare two parts.")
@json_option
def diff(
    *,
    files: Sequence[Path],
    layers: tuple[str, str] | None,
    paths: tuple[str, str] | None,
    as_json: bool,
) -> None:
    """Compare configurations: two files, the prefill and decode of one, or two of its layers.

    The exit code is 1 if they differ.

    \b
    Example:
      optrove config diff pair.json
      optrove config diff old.json new.json
      optrove config diff decode.json --layers 3 7
      optrove config diff decode.json --paths model.layers.3.mlp model.layers.7.mlp
    """
    from optrove.cli.config_documents import differences, differences_data, differences_document
    from optrove.runconfig.files import compared

    found = [differences(a, b) for a, b in compared(files, layers, paths)]
    show_answer(
        chain.from_iterable(map(differences_document, found)),
        lambda: map(differences_data, found),
        as_json=as_json,
    )
    sys.exit(FAILED if any(each.changes for each in found) else 0)


@config.command(short_help="Check ranges, arguments and weights.")
@files_argument
@click.option("--weights", metavar="DIR", type=_FOLDER, help="Also check its weight files.")
@json_option
def check(*, files: Sequence[Path], weights: Path | None, as_json: bool) -> None:
    """Check configurations: ranges, arguments against ttnn's signatures, weights.

    Each fault is listed with its path. The exit code is 1 if there are any.

    \b
    Example:
      optrove config check prefill.json decode.json
      optrove config check pair.json --weights weights/mlp
    """
    from optrove.cli.config_documents import checks_data, checks_document
    from optrove.runconfig.files import check_files

    found = check_files(files, weights)
    show_answer(checks_document(found), lambda: checks_data(found), as_json=as_json)
    if not all(each.signatures for each in found):
        log(
            "ttnn is not installed, so arguments were not checked against its signatures; "
            "install optrove[ttnn]"
        )
    sys.exit(FAILED if any(each.faults for each in found) else 0)


COMMANDS: Final = (config,)
