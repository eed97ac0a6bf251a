"""The optrove command and its sections."""

from __future__ import annotations

import io
import sys
from typing import Any, Final

import click

from optrove.cli import (
    ask,
    configure,
    keep,
    record,
    replay,
    share,
    sweep,
    test,
    without_hardware,
)
from optrove.cli.options import NO_PAGER, say
from optrove.errors import OptroveError
from optrove.model.exit_codes import COULD_NOT, INTERRUPTED
from optrove.settings import VARIABLES
from optrove.version import __version__

SECTIONS: Final[dict[str, tuple[click.Command, ...]]] = {
    "Record": record.COMMANDS,
    "Ask": ask.COMMANDS,
    "Replay": replay.COMMANDS,
    "Sweep": sweep.COMMANDS,
    "Test": test.COMMANDS,
    "Keep": keep.COMMANDS,
    "Share": share.COMMANDS,
    "Configure": configure.COMMANDS,
    "Without hardware": without_hardware.COMMANDS,
}
"""The commands in the order of the help page."""

_ENVIRONMENT: Final = "\b\nEnvironment:\n" + "\n".join(
    f"  {variable.name:24} {variable.help}" for variable in VARIABLES
)
_ELSEWHERE: Final = {
    "compare": 'Compare cases with "optrove diff", results with "optrove results --compare".',
}
"""Hints for unknown commands that have no similar name."""

_WHOLE: Final = 1000
"""The longest first sentence of a command's help: it continues on the next line, uncut."""


class Commands(click.Group):
    """A group with sections; an OptroveError ends it with exit code 2, Ctrl-C with 130."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """List the commands by section."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(each.name or "", each.get_short_help_str(_WHOLE)) for each in commands]
                )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Accept --no-pager behind the command, too."""
        own = args[: args.index("--")] if "--" in args else args
        if NO_PAGER in own:
            at = own.index(NO_PAGER)
            args = [NO_PAGER, *args[:at], *args[at + 1 :]]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command with this name, or fail with a hint."""
        if args and args[0] in _ELSEWHERE:
            ctx.fail(f"No such command '{args[0]}'. {_ELSEWHERE[args[0]]}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and show its errors; other exceptions keep their traceback."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            # Names of files, models and tests may hold characters that the terminal cannot show.
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except OptroveError as error:
            say(f"Error: {error}")
            ctx.exit(COULD_NOT)
        except KeyboardInterrupt:
            click.echo("optrove: interrupted", err=True)
            ctx.exit(INTERRUPTED)


def _set_pager(context: click.Context, _: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click's
    context.meta[NO_PAGER] = given


@click.group(
    cls=Commands, epilog=_ENVIRONMENT, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="optrove", message="%(prog)s %(version)s")
@click.option(
    NO_PAGER,
    is_flag=True,
    expose_value=False,
    callback=_set_pager,
    help="Print long output at once, as for a pipe; also behind a command.",
)
def main() -> None:
    """Record every op call of real models, keep each case once, query and replay them.

    \b
    Example: in which shardings do models call matmul with bfloat8_b weights?
      optrove who matmul --argument input_tensor_b --dtype bfloat8_b --by memory

    \b
    In tests:   pytest --optrove-board t3k --optrove-store trove.db tests/
    In Python:  with optrove.mock_board("t3k"), optrove.trace("trove.db"): ...

    Every command has --help with an example. Data goes to stdout, messages go to stderr. Exit
    codes: 0 good, 1 something failed or differs, 2 could not run.
    """


for _commands in SECTIONS.values():
    for _command in _commands:
        main.add_command(_command)
