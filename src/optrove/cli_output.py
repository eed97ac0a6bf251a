"""How commands print lists: through a pager where they are long, or as JSON, as they come."""

from __future__ import annotations

import json
import shutil
import sys
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

_BATCH: Final = 200


def echo_lines(lines: Iterable[str]) -> None:
    """Print lines as they come; on a terminal, through the pager if they are more than fit."""
    rest = iter(lines)
    if sys.stdout.isatty():
        height = shutil.get_terminal_size().lines
        first = list(islice(rest, height))
        if len(first) == height:
            click.echo_via_pager(f"{line}\n" for line in chain(first, rest))
            return
        rest = iter(first)
    while batch := list(islice(rest, _BATCH)):
        click.echo("\n".join(batch))


def echo_list(items: Iterable[Any]) -> None:
    """Print a JSON list, one item after the other, without ever holding all of them."""
    separator = "["
    for item in items:
        click.echo(separator + json.dumps(item, indent=2), nl=False)
        separator = ",\n"
    click.echo("[]" if separator == "[" else "]")


def table_width() -> int | None:
    """Return how wide a table may be: as the terminal is, or as it likes in a file or pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
