"""Draw what the demo shows, shortened, as the picture of the README."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.markup import escape

from optrove.cli.without_hardware import TROVE, Step, prepared, steps
from optrove.settings import STORE, environment

ROOT = Path(__file__).parents[1]
WIDTH = 100

# Without the fonts that rich would load from elsewhere: the picture stands alone.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


@dataclass(frozen=True, slots=True)
class Part:
    """Which lines of a command's output are in the picture: the first, or those with a word."""

    first: int = 0
    words: tuple[str, ...] = ()


PARTS = {
    "trace": Part(words=("exit code", " known)")),
    "ops": Part(first=7, words=(" ops, ",)),
    "show": Part(first=9),
    "replay": Part(words=("verdict", "pcc", "traced replay")),
    "check-board": Part(first=6),
    "sweep": Part(words=("cases: ",)),
    "report": Part(),
}


def draw(path: Path) -> None:
    """Run the commands of the demo and save what they show as an SVG file."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False)
    for step in steps(prepared(), shadow=True):
        output = run(step)
        if "--families" not in step.words:
            console.print(f"[bold green]$[/] [bold]{escape(step.line)}[/]")
            for line in shortened(output, PARTS[step.words[0]]):
                console.print(line[:WIDTH], markup=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    console.save_svg(str(path), title="optrove", code_format=FORMAT)


def run(step: Step) -> list[str]:
    """Return the lines that a command prints as data."""
    with environment({STORE.name: str(TROVE)}):
        done = subprocess.run(  # noqa: S603 - the demo's own words
            [sys.executable, "-m", "optrove", *step.words],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert step.is_well(done.returncode), step.line
    return [
        line for line in done.stdout.splitlines() if line.strip() and "stored as run" not in line
    ]


def shortened(lines: list[str], part: Part) -> list[str]:
    """Return the part of the lines that is shown, with a mark where some are left out."""
    head, rest = lines[: part.first], lines[part.first :]
    tail = [line for line in rest if any(word in line for word in part.words)]
    return [*head, *(["..."] if head and len(tail) < len(rest) else []), *tail]


if __name__ == "__main__":
    draw(ROOT / "docs" / "images" / "demo.svg")
