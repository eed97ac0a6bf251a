"""Draw a sharded tensor as a grid of cores, each with the shard that it holds, as SVG.

The picture has no colour of its own but one that shows on light and dark alike; lines and letters
take the colour of the text around it. It needs no style sheet and no script.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from optrove.report.shards import ShardLayout, shard_layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from optrove.model.values import TensorSpec
    from optrove.report.shards import Core, Holding, Part

_WIDTH: Final = 64
_HEIGHT: Final = 38
_GAP: Final = 3
_MARGIN: Final = 20
_CAPTION: Final = 22
_NARROWEST: Final = 420
_LETTER: Final = 0.6
"""How wide a digit is, as a share of its height."""
_LARGEST_TEXT: Final = 11.0
_MOST_SHOWN: Final = 3
_FILL: Final = "#3d84c6"
_LIGHTEST: Final = 0.16
_DARKEST: Final = 0.62
_FONT: Final = "ui-sans-serif, system-ui, sans-serif"
_STYLE: Final = (
    "<style>svg{color:#1d2733;background:#fff}"
    "@media (prefers-color-scheme:dark){svg{color:#e4e8ec;background:#14181d}}</style>"
)


def shard_svg(spec: TensorSpec) -> str | None:
    """Return the picture, to be put into a page; None for a tensor without shards."""
    return _drawn(spec, "")


def shard_file(spec: TensorSpec) -> str | None:
    """Return the picture as a file of its own, light or dark as its reader is."""
    return _drawn(spec, _STYLE)


def shard_words(layout: ShardLayout) -> str:
    """Return in one line how a tensor is cut and dealt out."""
    kind = layout.layout.replace("_", " ").lower()
    used = sum(bool(each.parts) for each in layout.holdings)
    cores = "bank" if layout.buffer == "DRAM" else "core"
    every = len(layout.holdings)
    of_all = f"{used:,}" if used == every else f"{used:,} of {every:,}"
    return (
        f"{layout.buffer} {kind}, {layout.orientation}: {_by(layout.sizes)} in {layout.count:,} "
        f"{'shard' if layout.count == 1 else 'shards'} of {_by(layout.shard)} on {of_all} "
        f"{cores if every == 1 else cores + 's'}"
    )


def _drawn(spec: TensorSpec, style: str) -> str | None:
    layout = shard_layout(spec)
    if layout is None:
        return None
    columns = max(x for x, _ in _cores(layout)) + 1
    rows = max(y for _, y in _cores(layout)) + 1
    width = max(_MARGIN + columns * (_WIDTH + _GAP) + _GAP, _NARROWEST)
    height = _MARGIN + rows * (_HEIGHT + _GAP) + _CAPTION
    words = escape(shard_words(layout))
    size = _text_size(layout)
    parts = [
        _opening(width, height),
        f"<title>{words}</title>{style}",
        *_axes(columns, rows),
        *_unused(layout, columns, rows),
        *(_cell(layout, each, size) for each in layout.holdings),
        _text(_GAP, height - 7, words, _fitting(len(words), width)),
        "</svg>",
    ]
    return "\n".join(parts)


def _opening(width: int, height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="{_FONT}" class="shards">'
    )


def _cores(layout: ShardLayout) -> list[Core]:
    return [each.core for each in layout.holdings]


def _place(core: Core) -> tuple[int, int]:
    return _MARGIN + core[0] * (_WIDTH + _GAP), _MARGIN + core[1] * (_HEIGHT + _GAP)


def _axes(columns: int, rows: int) -> Iterator[str]:
    for column in range(columns):
        x, _ = _place((column, 0))
        yield _text(x + _WIDTH / 2, _MARGIN - 6, str(column), 9, "middle", 0.65)
    for row in range(rows):
        _, y = _place((0, row))
        yield _text(_MARGIN - 6, y + _HEIGHT / 2 + 3, str(row), 9, "end", 0.65)


def _unused(layout: ShardLayout, columns: int, rows: int) -> Iterator[str]:
    """Draw the places between the cores that do not belong to the grid."""
    held = set(_cores(layout))
    for row in range(rows):
        for column in range(columns):
            if (column, row) not in held:
                yield _box(_place((column, row)), 'stroke-opacity="0.15" stroke-dasharray="2 3"')


def _cell(layout: ShardLayout, holding: Holding, size: float) -> str:
    x, y = _place(holding.core)
    about = f"core ({holding.core[0]},{holding.core[1]}): {_told(holding.parts)}"
    if not holding.parts:
        empty = _box((x, y), 'stroke-opacity="0.4" stroke-dasharray="3 2"')
        label = _text(x + _WIDTH / 2, y + _HEIGHT / 2 + 3, "empty", 9, "middle", 0.55)
        return f"<g><title>{about}</title>{empty}{label}</g>"
    first = holding.parts[0]
    lines = _labels(layout, holding.parts)
    top = y + _HEIGHT / 2 - (len(lines) - 1) * 6 + 4
    labels = [
        _text(x + _WIDTH / 2, top + 12 * place, line, size, "middle")
        for place, line in enumerate(lines)
    ]
    filled = _filled(layout, first, x, y)
    return f"<g><title>{about}</title>{filled}{_box((x, y))}{''.join(labels)}</g>"


def _filled(layout: ShardLayout, part: Part, x: int, y: int) -> str:
    """Draw how full a shard is, darker the later its place in the order."""
    shares = [
        (end - start) / size
        for start, end, size in zip(part.starts, part.ends, layout.shard, strict=True)
    ]
    across, down = min(shares[-1], 1.0), min(*shares[:-1], 1.0) if shares[:-1] else 1.0
    shade = _LIGHTEST + (_DARKEST - _LIGHTEST) * part.number / max(layout.count - 1, 1)
    return (
        f'<rect x="{x}" y="{y}" width="{_WIDTH * across:.1f}" height="{_HEIGHT * down:.1f}" '
        f'rx="3" fill="{_FILL}" fill-opacity="{shade:.2f}"/>'
    )


def _labels(layout: ShardLayout, parts: tuple[Part, ...]) -> list[str]:
    """Return what is written on a core: the part of the tensor that it holds."""
    if len(parts) > 1:
        numbers = [str(each.number) for each in parts[:_MOST_SHOWN]]
        more = ["..."] if len(parts) > _MOST_SHOWN else []
        return [f"{len(parts)} shards", ", ".join([*numbers, *more])]
    cut = [
        f"{start}-{end - 1}"
        for start, end, size in zip(parts[0].starts, parts[0].ends, layout.sizes, strict=True)
        if (start, end) != (0, size)
    ]
    return cut[-_MOST_SHOWN:] or ["all"]


def _told(parts: tuple[Part, ...]) -> str:
    """Return all that a core holds, for whoever points at it."""
    if not parts:
        return "no shard"
    shown = [f"shard {each.number} {_slice(each)}" for each in parts[:_MOST_SHOWN]]
    more = [f"{len(parts) - _MOST_SHOWN:,} more"] if len(parts) > _MOST_SHOWN else []
    return ", ".join([*shown, *more])


def _slice(part: Part) -> str:
    ranges = zip(part.starts, part.ends, strict=True)
    return f"[{', '.join(f'{start}:{end}' for start, end in ranges)}]"


def _text_size(layout: ShardLayout) -> float:
    """Return how large the letters on all cores can be."""
    parts = (each.parts for each in layout.holdings if each.parts)
    lines = (line for own in parts for line in _labels(layout, own))
    return _fitting(max(map(len, lines), default=1), _WIDTH - 6)


def _fitting(letters: int, width: float) -> float:
    return min(_LARGEST_TEXT, width / (_LETTER * max(letters, 1)))


def _box(place: tuple[int, int], more: str = 'stroke-opacity="0.45"') -> str:
    x, y = place
    return (
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="3" fill="none" '
        f'stroke="currentColor" {more}/>'
    )


def _text(
    x: float, y: float, words: str, size: float, anchor: str = "start", opacity: float = 1.0
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size:.1f}" text-anchor="{anchor}" '
        f'fill="currentColor" fill-opacity="{opacity:g}">{words}</text>'
    )


def _by(sizes: tuple[int, ...]) -> str:
    return "x".join(f"{size}" for size in sizes)
