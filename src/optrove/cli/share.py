"""The commands that share a trove: push, pull, roles.

``docs/command-line.md`` describes the output of ``--json``.
"""

from __future__ import annotations

from typing import Final

import click

from optrove.cli.options import json_option, log_recovered, show, store_option
from optrove.cli.progress import transfer_progress

_with_capsules = click.option(
    "--with-capsules", is_flag=True, help="Also copy capsules, the real tensors of calls."
)


@click.command()
@click.argument("other", metavar="STORE")
@click.option("--scrub", is_flag=True, help="Remove paths, host names and user names.")
@_with_capsules
@store_option
@json_option
def push(*, other: str, scrub: bool, with_capsules: bool, store: str | None, as_json: bool) -> None:
    """Send the runs that another trove lacks.

    STORE is a path or a postgresql:// URL; a missing trove is created. Runs, recordings and
    attempts are identified by their ids, so only new ones are sent, in small transactions. After
    an interruption, the same command sends the rest. Capsules are not sent without
    --with-capsules, because values may be private.

    \b
    Example:
      optrove push postgresql://team@db.example/optrove
      optrove push public.db --scrub
    """
    _share(store, other, scrub=scrub, as_json=as_json, with_capsules=with_capsules)


@click.command()
@click.argument("other", metavar="STORE")
@_with_capsules
@store_option
@json_option
def pull(*, other: str, with_capsules: bool, store: str | None, as_json: bool) -> None:
    """Fetch the runs that this trove lacks from another one.

    STORE is a path or a postgresql:// URL. After a push and a pull, both troves have the same
    contents.

    \b
    Example:
      optrove pull postgresql://reader@db.example/optrove
    """
    _share(other, store, as_json=as_json, with_capsules=with_capsules)


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
    help="Role that may also push and remove runs.",
)
def roles(*, reader: str, writer: str) -> None:
    """Print the SQL that creates roles to read and to write a PostgreSQL trove.

    This command changes nothing: the owner of the trove reviews and runs the SQL. A reader can only
    read; a writer can push and remove runs, but cannot change or drop tables.

    \b
    Example:
      optrove roles | psql "$TROVE_URL"
      psql "$TROVE_URL" -c 'GRANT optrove_writer TO alice'
    """
    from optrove.trove.sharing import grants

    click.echo(grants(reader, writer), nl=False)


def _share(
    source: str | None,
    target: str | None,
    *,
    scrub: bool = False,
    as_json: bool,
    with_capsules: bool,
) -> None:
    from optrove.report.document import Paragraph
    from optrove.trove.capsules import copy_capsules
    from optrove.trove.opening import located
    from optrove.trove.sharing import share

    with transfer_progress() as progress:
        sent = share(source, target, log_recovered, progress, scrub=scrub)
    if with_capsules:
        copy_capsules(located(source), located(target))
    to = str(located(target))
    new = f"{sent.calls:,} calls, {sent.attempts:,} attempts, {sent.cases_new:,} new cases"
    text = f"sent {sent.runs:,} runs to {to}: {new}"
    if not sent.runs:
        text = f"nothing new: {to} has all of it"
    data = {
        "from": str(located(source)),
        "to": to,
        "runs": sent.runs,
        "recordings": sent.recordings,
        "calls": sent.calls,
        "attempts": sent.attempts,
        "cases": sent.cases_new,
    }
    show([Paragraph(text)], lambda: data, as_json=as_json)


COMMANDS: Final = (push, pull, roles)
