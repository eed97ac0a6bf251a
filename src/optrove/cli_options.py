"""What the commands share: options for a trove, JSON and cases, and the talk about journals."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from optrove.flows.stores import Recovered

_Command = TypeVar("_Command", bound="Callable[..., Any]")

STORE_HELP: Final = "Trove  [default: OPTROVE_STORE, else .optrove/trove.db here or above]"

_SIZE: Final = re.compile(r"[0-9]{1,18}")

store_option = click.option("--store", metavar="PATH|URL", help=STORE_HELP)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
all_ops_option = click.option("--all-ops", is_flag=True, help="Count ops that only move data, too.")
nested_option = click.option("--nested", is_flag=True, help="Count calls made by other ops, too.")


def _shape(_: click.Context, __: click.Parameter, given: str | None) -> tuple[int, ...] | None:
    """Return the sizes of ``1x1x32x64``, ``1,1,32,64`` or ``[1, 1, *, 64]``; -1 is any."""
    if given is None:
        return None
    sizes = re.split(r"\s*[x,]\s*", given.strip().strip("[]()").strip(" ,"))
    if not all(size == "*" or _SIZE.fullmatch(size) for size in sizes):
        raise click.BadParameter("write 1x1x32x64 or 1,1,32,64, with * for any size")
    return tuple(-1 if size == "*" else int(size) for size in sizes)


def case_filters(*board: str) -> Callable[[_Command], _Command]:
    """Return what gives a command the options that choose cases of an op.

    ``board`` is how the option is called that chooses by the board of the recording.
    """
    options = (
        click.option("--argument", metavar="NAME", help="Tensor of this parameter."),
        click.option("--dtype", metavar="NAME", help="bfloat16, bfloat8_b, float32, ..."),
        click.option("--layout", metavar="NAME", help="TILE or ROW_MAJOR; strided, ..."),
        click.option("--memory", metavar="NAME", help="L1, SHARDED, L1_WIDTH_SHARDED, HOST, ..."),
        click.option("--shape", metavar="SIZES", callback=_shape, help="1x1x32x64; * is any size."),
        click.option("--mesh", metavar="SIZES", callback=_shape, help="Mesh of chips, as 4x8."),
        click.option("--model", metavar="NAME", help="Called by this model; a part is enough."),
        click.option(*board, metavar="NAME", help="Called on this board."),
        click.option("--run", metavar="RUN", help="Called in this run; the beginning is enough."),
        nested_option,
        click.option("--all-ops", is_flag=True, help="With *: ops that only move data, too."),
    )

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def tell_recovered(recovered: Recovered) -> None:
    """Say on stderr that a run was taken in whose process had died, or why it was not."""
    from optrove.report.tables import plural

    name = recovered.directory.name[:12]
    if recovered.problem is not None:
        text = f"the journals of run {name} in {recovered.directory} cannot be taken in"
        click.echo(f"optrove: {text}: {recovered.problem}", err=True)
        return
    added = recovered.added
    found = f"{plural(added.calls, 'call')}, {plural(added.cases_new, 'new case')}"
    click.echo(f"optrove: recovered run {name}, which was left behind: {found}", err=True)
