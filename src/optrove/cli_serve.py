"""The command that shows a trove in a browser: serve."""

from __future__ import annotations

from typing import Final

import click

from optrove.cli_options import store_option, tell_recovered

_HOST: Final = "127.0.0.1"
_PORT: Final = 8777


@click.command()
@store_option
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65_535),
    default=_PORT,
    show_default=True,
    help="Port to serve at; 0 is any that is free.",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    default=_HOST,
    show_default=True,
    help="Address to serve at; another than this machine's own needs --token.",
)
@click.option("--token", metavar="TEXT", help="Secret that visitors have to know.")
def serve(*, store: str | None, port: int, host: str, token: str | None) -> None:
    """Show a trove in a browser: ops, cases, runs, boards, comparisons.

    Serves pages to this machine only, and changes nothing. Every page has a twin for machines:
    the same address with format=json, described by /openapi.json. Stop it with Ctrl-C.

    \b
    Example:
      optrove serve
      optrove serve --store team.db --port 0
      optrove serve --host 0.0.0.0 --token "$(openssl rand -hex 16)"
    """
    from optrove.flows.stores import located, recover
    from optrove.web.safety import check_safe, web_missing

    check_safe(host, token)
    place = located(store)
    for recovered in recover(place):
        tell_recovered(recovered)
    try:
        from optrove.web import serving
    except ModuleNotFoundError as error:
        raise web_missing(error) from error

    serving.serve(place, host=host, port=port, token=token, store=store, tell=_tell)


def _tell(address: str) -> None:
    click.echo(f"optrove: open {address} in a browser; stop with Ctrl-C", err=True)


COMMANDS: Final = (serve,)
