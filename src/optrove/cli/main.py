"""The optrove command: its sections, and the commands boards and doctor."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from optrove.cli.ask import COMMANDS as QUERY_COMMANDS
from optrove.cli.ask import SERVE_COMMANDS
from optrove.cli.configure import COMMANDS as CONFIG_COMMANDS
from optrove.cli.keep import COMMANDS as STORE_COMMANDS
from optrove.cli.options import json_option, table_width
from optrove.cli.record import trace
from optrove.cli.replay import COMMANDS as REPLAY_COMMANDS
from optrove.cli.share import COMMANDS as SHARE_COMMANDS
from optrove.cli.sweep import COMMANDS as SWEEP_COMMANDS
from optrove.cli.sweep import RESULT_COMMANDS, VECTOR_COMMANDS
from optrove.cli.test import COMMANDS as TESTGEN_COMMANDS
from optrove.cli.without_hardware import COMMANDS as DEMO_COMMANDS
from optrove.errors import OptroveError
from optrove.report.tables import Column, table_lines, wrapped
from optrove.settings import VARIABLES, read_settings
from optrove.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.status import Status

    from optrove.cli.doctor import Finding

ENVIRONMENT = "\b\nEnvironment:\n" + "\n".join(
    f"  {variable.name:21} {variable.help}" for variable in VARIABLES
)


SECTIONS = {
    "Record": ("trace", "import"),
    "Ask": ("ops", "show", "who", "diff", "runs", "models", "serve"),
    "Replay": ("replay", "check-board", "check-release", "audit-goldens"),
    "Sweep": ("sweep", "vectors", "results", "report"),
    "Test": ("testgen", "shrink"),
    "Keep": ("export", "merge", "rm"),
    "Share": ("push", "pull", "roles"),
    "Configure": ("config",),
    "Without hardware": ("demo", "boards", "doctor"),
}
"""In which order the first page of help shows the commands."""

_ELSEWHERE: Final = {
    "compare": 'What models call: "optrove diff". What came of runs: "optrove results --compare".',
}
"""What to type instead of names that are none, and near none."""

_COLOURS: Final = {"ok": "green", "missing": "yellow", "broken": "red"}
_BOARD_COLUMNS: Final = (
    Column("board"),
    Column("arch"),
    Column("chips", right=True),
    Column("mesh shapes"),
    Column("grid"),
    Column("DRAM"),
)

_WHOLE: Final = 1000
"""How long the first sentence of a command's help may be: it goes on in the next line, uncut."""


class Commands(click.Group):
    """A group whose own errors end with exit code 2 and one readable message."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by what they are for."""
        for title, names in SECTIONS.items():
            with formatter.section(title):
                found = (self.get_command(ctx, name) for name in names)
                rows = [
                    (each.name or "", each.get_short_help_str(_WHOLE)) for each in found if each
                ]
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was typed; one that goes by another name here is named."""
        if args and args[0] in _ELSEWHERE:
            ctx.fail(f"No such command '{args[0]}'. {_ELSEWHERE[args[0]]}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; our errors are shown, all others are faults and keep their trace."""
        try:
            return super().invoke(ctx)
        except OptroveError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(2)


@click.group(
    cls=Commands, epilog=ENVIRONMENT, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="optrove", message="%(prog)s %(version)s")
def main() -> None:
    """Record every op call that real models make, keep each once, ask which are made, and how.

    \b
    Example: in which shardings do models call matmul with bfloat8_b weights?
      optrove who matmul --argument input_tensor_b --dtype bfloat8_b --by memory

    \b
    In tests:   pytest --optrove-board t3k --optrove-store trove.db tests/
    In Python:  with optrove.mock_board("t3k"), optrove.trace("trove.db"): ...

    Every command has --help with an example. Data goes to stdout, talk to stderr. Exit codes:
    0 good, 1 something failed or differs, 2 could not be done.
    """


for command in (
    trace,
    *QUERY_COMMANDS,
    *REPLAY_COMMANDS,
    *SWEEP_COMMANDS,
    *VECTOR_COMMANDS,
    *RESULT_COMMANDS,
    *STORE_COMMANDS,
    *SHARE_COMMANDS,
    *TESTGEN_COMMANDS,
    *CONFIG_COMMANDS,
    *SERVE_COMMANDS,
    *DEMO_COMMANDS,
):
    main.add_command(command)


@main.command()
@json_option
def boards(*, as_json: bool) -> None:
    """List the boards that can be opened without hardware.

    The grid of compute cores and of DRAM banks is what ttnn reports for the opened board, as
    columns x rows; mesh shapes are rows x columns of chips.

    \b
    Example:
      optrove boards
      OPTROVE_BOARD=t3k pytest tests/
    """
    from optrove.frameworks.ttnn.board.table import BOARDS

    rows = [
        {
            "board": board.name,
            "arch": board.arch,
            "chips": board.chips,
            "mesh_shapes": board.mesh_shapes,
            "compute_grid": board.compute_grid,
            "dram_grid": board.dram_grid,
            "title": board.title,
        }
        for board in BOARDS.values()
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    lines = []
    for board in BOARDS.values():
        shapes = " ".join(f"{height}x{width}" for height, width in board.mesh_shapes)
        grid, dram = (f"{x}x{y}" for x, y in (board.compute_grid, board.dram_grid))
        lines.append((board.name, board.arch, str(board.chips), shapes, grid, dram))
    click.echo("\n".join(table_lines(_BOARD_COLUMNS, lines)))


@main.command()
@click.option(
    "--board",
    metavar="NAME",
    help="Mock board to open as a trial  [default: OPTROVE_BOARD, else n150]",
)
@json_option
def doctor(*, board: str | None, as_json: bool) -> None:
    """Tell what works on this machine, and what to do about the rest.

    Opens one mock board in a process of its own. Ends with 1 if something that is installed does
    not work; parts that are merely not installed do no harm.

    \b
    Example:
      optrove doctor
      optrove doctor --board galaxy --json
    """
    from optrove.cli.doctor import examine, is_healthy
    from optrove.frameworks.ttnn.board.table import find_board

    wanted = board or read_settings().board or "n150"
    name = find_board(wanted).name
    with _waiting(f"opening a mock {name} ..."):
        findings = tuple(examine(name))
    healthy = is_healthy(findings)
    if as_json:
        report = {"healthy": healthy, "findings": [asdict(finding) for finding in findings]}
        click.echo(json.dumps(report, indent=2))
    else:
        click.echo("\n".join(finding_lines(findings)))
    sys.exit(0 if healthy else 1)


def finding_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield what was found, a line or more for each part, and below it what to do about it."""
    widest = max(len(finding.part) for finding in findings)
    for finding in findings:
        state = finding.state.value
        label = f"{state:8} {finding.part:{widest}}  "
        first, *more = wrapped(label, finding.detail, table_width())
        # Coloured last: colours count as letters where lines are broken.
        yield click.style(state, fg=_COLOURS[state]) + first[len(state) :]
        yield from more
        if finding.remedy:
            yield from wrapped(" " * len(label) + "-> ", finding.remedy, table_width())


def _waiting(message: str) -> Status:
    """Show on a terminal's stderr that something is going on."""
    from rich.console import Console

    return Console(stderr=True).status(message)
