"""The commands that share a trove: push, pull, roles.

``--json`` prints one object. ``push`` and ``pull``: ``{"from", "to", "runs", "recordings", "calls",
"attempts", "cases"}``, where the numbers are what was new at the other side.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from optrove.cli.options import json_option, store_option, tell_recovered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from optrove.trove.sharing import Shared, Transfer, Transferred

_LINE_SECONDS: Final = 10.0

_scrub_option = click.option(
    "--scrub", is_flag=True, help="Without paths, host names and user names."
)


@click.command()
@click.argument("other", metavar="STORE")
@_scrub_option
@store_option
@json_option
def push(*, other: str, scrub: bool, store: str | None, as_json: bool) -> None:
    """Send another trove what it lacks of this one.

    STORE is a path or a postgresql:// URL; a trove is made where there is none. Runs, recordings
    and attempts are known by their ids, so that only what is new is sent, in small transactions:
    after an interruption the same command sends the rest.

    \b
    Example:
      optrove push postgresql://team@db.example/optrove
      optrove push public.db --scrub
    """
    from optrove.trove.sharing import Transfer

    _tell(_shared(Transfer(store, other, scrub=scrub)), as_json=as_json)


@click.command()
@click.argument("other", metavar="STORE")
@store_option
@json_option
def pull(*, other: str, store: str | None, as_json: bool) -> None:
    """Fetch from another trove what this one lacks.

    STORE is a path or a postgresql:// URL. Like push, with the troves the other way round; after
    both, the two troves hold the same.

    \b
    Example:
      optrove pull postgresql://reader@db.example/optrove
    """
    from optrove.trove.sharing import Transfer

    _tell(_shared(Transfer(other, store)), as_json=as_json)


@click.command()
@click.option(
    "--reader",
    metavar="NAME",
    default="optrove_reader",
    show_default=True,
    help="Role that may read.",
)
@click.option(
    "--writer",
    metavar="NAME",
    default="optrove_writer",
    show_default=True,
    help="Role that may push and remove runs, too.",
)
def roles(*, reader: str, writer: str) -> None:
    """Print the SQL that gives a PostgreSQL trove roles to read and to write.

    Nothing is changed: the owner of the trove reads it and runs it. A reader can only read; a
    writer can push and remove runs, and cannot change or drop a table.

    \b
    Example:
      optrove roles | psql "$TROVE_URL"
      psql "$TROVE_URL" -c 'GRANT optrove_writer TO alice'
    """
    from optrove.trove.sharing import grants

    click.echo(grants(reader, writer), nl=False)


COMMANDS: Final = (push, pull, roles)


def _shared(transfer: Transfer) -> Transferred:
    from optrove.trove.sharing import share

    with _watching() as watch:
        return share(transfer, tell_recovered, watch)


@contextmanager
def _watching() -> Iterator[Callable[[Shared, Shared], object]]:
    """Give what tells on stderr how far it is."""
    if not sys.stderr.isatty():
        yield _Lines().watch
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("sending", total=None)

        def watch(sent: Shared, total: Shared) -> None:
            bar.update(task, completed=_amount(sent), total=_amount(total))

        yield watch


class _Lines:
    """Tells how far it is in lines, not too often."""

    def __init__(self) -> None:
        self._told = time.monotonic()

    def watch(self, sent: Shared, total: Shared) -> None:
        """Say something if there was silence for a while."""
        if time.monotonic() - self._told >= _LINE_SECONDS:
            self._told = time.monotonic()
            runs = f"{sent.runs:,} of {total.runs:,} runs"
            text = f"{runs}, {sent.calls:,} calls, {sent.attempts:,} attempts"
            click.echo(f"optrove: sent {text}", err=True)


def _amount(shared: Shared) -> int:
    return shared.runs + shared.calls + shared.attempts


def _tell(transferred: Transferred, *, as_json: bool) -> None:
    sent = transferred.sent
    if as_json:
        data = {
            "from": transferred.source,
            "to": transferred.target,
            "runs": sent.runs,
            "recordings": sent.recordings,
            "calls": sent.calls,
            "attempts": sent.attempts,
            "cases": sent.cases,
        }
        click.echo(json.dumps(data, indent=2))
        return
    if not sent.runs:
        click.echo(f"nothing new: {transferred.target} has all of it")
        return
    new = f"{sent.calls:,} calls, {sent.attempts:,} attempts, {sent.cases or 0:,} new cases"
    click.echo(f"sent {sent.runs:,} runs to {transferred.target}: {new}")
