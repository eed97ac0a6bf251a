"""What the commands share: the options for a trove and for JSON, and the talk about journals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from optrove.flows.stores import Recovered

STORE_HELP: Final = "Trove  [default: OPTROVE_STORE, else .optrove/trove.db here or above]"

store_option = click.option("--store", metavar="PATH|URL", help=STORE_HELP)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")


def tell_recovered(recovered: Recovered) -> None:
    """Say on stderr that a run was taken in whose process had died, or why it was not."""
    name = recovered.directory.name[:12]
    if recovered.problem is not None:
        text = f"the journals of run {name} in {recovered.directory} cannot be taken in"
        click.echo(f"optrove: {text}: {recovered.problem}", err=True)
        return
    added = recovered.added
    click.echo(
        f"optrove: recovered run {name}, which was left behind: {added.calls:,} calls, "
        f"{added.cases_new:,} new cases",
        err=True,
    )
