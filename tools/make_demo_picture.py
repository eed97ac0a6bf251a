"""Draw what the demo shows, as the picture of the README."""

from __future__ import annotations

import io
import re
import runpy
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

ROOT = Path(__file__).parents[1]

# Without the fonts that rich would load from elsewhere: the picture stands alone.
FORMAT = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def draw(path: Path) -> None:
    """Run the demo and save what it shows as an SVG file."""
    console = Console(record=True, width=84, file=io.StringIO(), highlight=False)
    console.print("[bold green]$[/] make demo")
    runpy.run_path(str(ROOT / "examples" / "encoder" / "run.py"))["main"](console)
    path.parent.mkdir(parents=True, exist_ok=True)
    console.save_svg(str(path), title="optrove", code_format=FORMAT)


if __name__ == "__main__":
    draw(ROOT / "docs" / "images" / "demo.svg")
