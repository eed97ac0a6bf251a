"""The optrove command: parse, call a flow, show what it returns."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from optrove import __version__
from optrove.cli_config import COMMANDS as CONFIG_COMMANDS
from optrove.cli_demo import COMMANDS as DEMO_COMMANDS
from optrove.cli_options import json_option
from optrove.cli_query import COMMANDS as QUERY_COMMANDS
from optrove.cli_replay import COMMANDS as REPLAY_COMMANDS
from optrove.cli_results import COMMANDS as RESULT_COMMANDS
from optrove.cli_serve import COMMANDS as SERVE_COMMANDS
from optrove.cli_share import COMMANDS as SHARE_COMMANDS
from optrove.cli_store import COMMANDS as STORE_COMMANDS
from optrove.cli_sweep import COMMANDS as SWEEP_COMMANDS
from optrove.cli_testgen import COMMANDS as TESTGEN_COMMANDS
from optrove.cli_trace import trace
from optrove.cli_vectors import COMMANDS as VECTOR_COMMANDS
from optrove.errors import OptroveError
from optrove.settings import VARIABLES, read_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.status import Status
    from rich.table import Table

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
    Example: which models call matmul with bfloat8_b weights, in which shardings, how often?
      optrove who matmul --argument input_tensor_b --dtype bfloat8_b --by memory

    \b
    In tests:   pytest --optrove-board t3k --optrove-store trove.db tests/
    In Python:  with optrove.mock_board("t3k"), optrove.trace("trove.db"): import ttnn; ...

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
    from optrove.backends.ttnn.boards import BOARDS

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
    table = _table(("board", "arch", "chips", "mesh shapes", "grid", "DRAM"))
    for board in BOARDS.values():
        shapes = " ".join(f"{height}x{width}" for height, width in board.mesh_shapes)
        grid, dram = (f"{x}x{y}" for x, y in (board.compute_grid, board.dram_grid))
        table.add_row(board.name, board.arch, str(board.chips), shapes, grid, dram)
    _show(table)


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
    from optrove.backends.ttnn.boards import find_board
    from optrove.flows.doctor import examine, is_healthy

    wanted = board or read_settings().board or "n150"
    name = find_board(wanted).name
    with _waiting(f"opening a mock {name} ..."):
        findings = tuple(examine(name))
    healthy = is_healthy(findings)
    if as_json:
        report = {"healthy": healthy, "findings": [asdict(finding) for finding in findings]}
        click.echo(json.dumps(report, indent=2))
    else:
        colours = {"ok": "green", "missing": "yellow", "broken": "red"}
        table = _table(("part", "state", "found", "what to do"))
        for finding in findings:
            state = finding.state.value
            colour = colours[state]
            table.add_row(
                finding.part,
                f"[{colour}]{state}[/]",
                _plain(finding.detail),
                _plain(finding.remedy),
            )
        _show(table)
    sys.exit(0 if healthy else 1)


def _table(columns: Sequence[str]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column)
    return table


def _show(table: Table) -> None:
    from rich.console import Console

    # A pipe has no width; a table that is folded at 80 columns would be hard to read in a log.
    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(table)


def _waiting(message: str) -> Status:
    """Show on a terminal's stderr that something is going on."""
    from rich.console import Console

    return Console(stderr=True).status(message)


def _plain(text: str) -> str:
    """Keep rich from reading ``optrove[ttnn]`` as a style."""
    from rich.markup import escape

    return escape(text)
