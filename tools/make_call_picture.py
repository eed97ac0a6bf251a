"""Draw the way of one call through the rooms of optrove: ``docs/images/one-call.svg``."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH, BOX_WIDTH, BOX_HEIGHT, GAP, ROW = 1010, 186, 62, 13, 118
PICTURE = Path(__file__).parents[1] / "docs/images/one-call.svg"


@dataclass(frozen=True)
class Box:
    """One step: the room or file that takes it, and what it does there."""

    name: str
    lines: tuple[str, ...]


ROWS = (
    (
        "while the model runs",
        (
            Box("ttnn.add(a, b)", ("the model's own code",)),
            Box("frameworks/ttnn/probe", ("sees the call,", "makes a cheap key")),
            Box("serializer", ("describes a new case:", "Values, JSON, hashes")),
            Box("capture", ("recorder, sinks,", "call site, scope")),
            Box("journal", ("case before the call,", "one record per call")),
        ),
    ),
    (
        "when the session ends",
        (
            Box("journal/reader", ("reads each file once,", "also after a crash")),
            Box("trove", ("each case once, its calls,", "tests and run")),
            Box("report", ("a document per answer,", "its data beside it")),
            Box("cli, web, HTML report", ("draw the document",)),
        ),
    ),
    (
        "when a case is replayed",
        (
            Box("replay/planning", ("cases from the trove", "become jobs")),
            Box("replay/worker", ("one process, one", "open device")),
            Box("frameworks/ttnn/execute", ("builds the arguments,", "calls, traces the call")),
            Box("replay/judge", ("decides the outcome",)),
            Box("trove", ("stores the attempt",)),
        ),
    ),
)

STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #1f2937 }
  .title { font-weight: 600 } .row { font-style: italic; fill: #4b5563 }
  .box { fill: #f3f4f6; stroke: #6b7280; rx: 6 } .arrow { stroke: #6b7280; stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e5e7eb } .row { fill: #9ca3af } .box { fill: #1f2937; stroke: #9ca3af }
    .arrow { stroke: #9ca3af }
  }
"""


def main() -> None:
    """Write the picture."""
    height = ROW * len(ROWS) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        "<title>The way of one call through optrove</title>",
        f"<style>{STYLE}</style>",
    ]
    for number, (label, boxes) in enumerate(ROWS):
        top = 12 + number * ROW
        parts.append(f'<text class="row" x="12" y="{top + 14}">{escape(label)}</text>')
        parts += [part for at, box in enumerate(boxes) for part in drawn(box, at, top + 26)]
    PICTURE.write_text("\n".join([*parts, "</svg>", ""]))


def drawn(box: Box, at: int, top: int) -> list[str]:
    """Return a box and, unless it is the first of its row, the arrow that leads to it."""
    left = 12 + at * (BOX_WIDTH + GAP)
    middle = top + BOX_HEIGHT // 2
    parts = [
        f'<rect class="box" x="{left}" y="{top}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}"/>',
        f'<text class="title" x="{left + 10}" y="{top + 20}">{escape(box.name)}</text>',
    ]
    for number, line in enumerate(box.lines):
        parts.append(f'<text x="{left + 10}" y="{top + 37 + 16 * number}">{escape(line)}</text>')
    if at:
        start = left - GAP + 3
        tip = left - 3
        parts.append(f'<line class="arrow" x1="{start}" y1="{middle}" x2="{tip}" y2="{middle}"/>')
        head = f"M{tip - 5} {middle - 4} L{tip} {middle} L{tip - 5} {middle + 4}"
        parts.append(f'<path class="arrow" fill="none" d="{head}"/>')
    return parts


if __name__ == "__main__":
    main()
