"""The shards of a tensor on the cores of a device, and a picture of them.

ttnn sees a tensor as a matrix (its last size is the width, the product of all others the height)
and cuts it into shards, row by row. ``HEIGHT_SHARDED`` and ``WIDTH_SHARDED`` assign them to the
cores in the order of the orientation; ``BLOCK_SHARDED`` keeps their places in the matrix, or, for
``COL_MAJOR``, in the transposed one. Shards of more dimensions are assigned in turn, so that a core
may hold several.

The picture has one color, which is visible on light and dark; lines and letters have the color of
the text around it. It needs no style sheet and no script.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from html import escape
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Final

from optrove.errors import UnusableResults
from optrove.model.ttnn_classes import Core, Memory, Shards
from optrove.model.values import TensorSpec, TtnnPlacement, walk
from optrove.report.wording import SHORT_ID, plural
from optrove.serializer.described import case_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from optrove.model.trove import CaseRow


_GRID_LIMIT: Final = 64
_MAX_SHARDS: Final = 16_384
_SIZE_LIMIT: Final = 2**40
_IN_BLOCKS: Final = frozenset({"BLOCK_SHARDED", "GRID_2D"})
_COLUMNS_FIRST: Final = "COL_MAJOR"
_BY_MATRIX: Final = 2


@dataclass(frozen=True, slots=True)
class Part:
    """One shard: its number, and its start and end in each dimension of the tensor."""

    number: int
    starts: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """A tensor that is cut into shards, which are ``held`` by cores, some of which have none.

    ``sizes`` are those of the tensor in as many dimensions as its shards have.
    """

    buffer: str
    layout: str
    orientation: str
    sizes: tuple[int, ...]
    shard: tuple[int, ...]
    held: Mapping[Core, Sequence[Part]]

    @property
    def count(self) -> int:
        """The number of shards."""
        return sum(map(len, self.held.values()))


def shard_layout(spec: TensorSpec) -> ShardLayout | None:
    """Return the shards of each core; None for a tensor that is not or cannot be sharded so."""
    if not isinstance(spec.placement, TtnnPlacement) or spec.placement.memory is None:
        return None
    memory, shape = Memory.of(spec.placement.memory), spec.placement.padded_shape
    if memory is None or memory.shards is None:
        return None
    shards = replace(memory.shards, strategy=memory.shards.strategy or memory.layout)
    if not _is_possible(shards, shape):
        return None
    sizes = _cut_sizes(shape, shards)
    return ShardLayout(
        buffer=memory.buffer,
        layout=memory.layout,
        orientation=shards.orientation,
        sizes=sizes,
        shard=shards.shape,
        held=_held(shards, _parts(sizes, shards.shape), sizes),
    )


def _is_possible(shards: Shards, shape: Sequence[int]) -> bool:
    """Return whether shards can be assigned at all: recorded data may be absurd."""
    corners = [corner for each in shards.grid.ranges for corner in each]
    within = all(0 <= x < _GRID_LIMIT and 0 <= y < _GRID_LIMIT for x, y in corners)
    if not within or len(shards.grid.ranges) > _GRID_LIMIT or min(shards.shape) < 1:
        return False
    if not all(0 < size < _SIZE_LIMIT for size in shape):
        return False
    sizes = _cut_sizes(shape, shards)
    count = prod(-(-size // part) for size, part in zip(sizes, shards.shape, strict=True))
    return count <= _MAX_SHARDS and bool(_cores(shards))


def _cut_sizes(shape: Sequence[int], shards: Shards) -> tuple[int, ...]:
    """Return the sizes of a tensor in as many dimensions as its shards have."""
    rank = len(shards.shape)
    as_matrix = rank == _BY_MATRIX and str(shards.strategy).endswith("SHARDED")
    whole = (*(1,) * max(rank - len(shape), 0), *shape)
    first = len(whole) - rank + 1
    if as_matrix or first > 1:
        return (prod(whole[:first]), *whole[first:])
    return whole


def _parts(sizes: Sequence[int], shard: Sequence[int]) -> list[Part]:
    steps = (range(0, size, part) for size, part in zip(sizes, shard, strict=True))
    return [
        Part(
            number,
            starts,
            tuple(
                min(start + part, size)
                for start, part, size in zip(starts, shard, sizes, strict=True)
            ),
        )
        for number, starts in enumerate(product(*steps))
    ]


def _cores(shards: Shards) -> list[Core]:
    """Return the cores in the order in which they get shards."""
    found: dict[Core, None] = {}
    for (left, top), (right, bottom) in shards.grid.ranges:
        columns, rows = range(left, right + 1), range(top, bottom + 1)
        if shards.orientation == _COLUMNS_FIRST:
            found.update(dict.fromkeys((x, y) for x in columns for y in rows))
        else:
            found.update(dict.fromkeys((x, y) for y in rows for x in columns))
    return list(found)


def _held(shards: Shards, parts: Sequence[Part], sizes: Sequence[int]) -> dict[Core, list[Part]]:
    cores = _cores(shards)
    held: dict[Core, list[Part]] = {core: [] for core in cores}
    places = [cores[part.number % len(cores)] for part in parts]
    if shards.strategy in _IN_BLOCKS and len(shards.grid.ranges) == 1 and len(sizes) == _BY_MATRIX:
        blocks = _block_places(shards, len(parts), columns=-(-sizes[1] // shards.shape[1]))
        places = blocks if held.keys() >= set(blocks) else places
    for core, part in zip(places, parts, strict=True):
        held[core].append(part)
    return held


def _block_places(shards: Shards, count: int, *, columns: int) -> list[Core]:
    """Return the cores of shards that keep their places in the matrix."""
    left, top = shards.grid.ranges[0][0]
    places = (divmod(number, columns) for number in range(count))
    if shards.orientation == _COLUMNS_FIRST:
        places = ((column, row) for row, column in places)
    return [(left + column, top + row) for row, column in places]


_WIDTH: Final = 64
_HEIGHT: Final = 38
_GAP: Final = 3
_MARGIN: Final = 20
_CAPTION: Final = 22
_NARROWEST: Final = 420
_LETTER: Final = 0.6
"""The width of a digit as a share of its height."""
_MAX_FONT_SIZE: Final = 11.0
_MAX_SHOWN: Final = 3
_FILL: Final = "#3d84c6"
_LIGHTEST: Final = 0.16
_DARKEST: Final = 0.62
_FONT: Final = "ui-sans-serif, system-ui, sans-serif"
_STYLE: Final = (
    "<style>svg{color:#1d2733;background:#fff}"
    "@media (prefers-color-scheme:dark){svg{color:#e4e8ec;background:#14181d}}</style>"
)


def shard_svg(spec: TensorSpec) -> str | None:
    """Return the picture for an HTML page; None for a tensor without shards."""
    return _drawn(spec, "")


def shard_file(spec: TensorSpec) -> str | None:
    """Return the picture as the text of an SVG file, light or dark as the viewer is."""
    return _drawn(spec, _STYLE)


def shard_words(layout: ShardLayout) -> str:
    """Return the shards of a tensor in one line."""
    kind = layout.layout.replace("_", " ").lower()
    used, every = sum(map(bool, layout.held.values())), len(layout.held)
    cores = plural(every, "bank" if layout.buffer == "DRAM" else "core")
    return (
        f"{layout.buffer} {kind}, {layout.orientation}: {_by(layout.sizes)} in "
        f"{plural(layout.count, 'shard')} of {_by(layout.shard)} on "
        f"{cores if used == every else f'{used:,} of {cores}'}"
    )


def _drawn(spec: TensorSpec, style: str) -> str | None:
    layout = shard_layout(spec)
    if layout is None:
        return None
    columns = max(x for x, _ in layout.held) + 1
    rows = max(y for _, y in layout.held) + 1
    width = max(_MARGIN + columns * (_WIDTH + _GAP) + _GAP, _NARROWEST)
    height = _MARGIN + rows * (_HEIGHT + _GAP) + _CAPTION
    words = escape(shard_words(layout))
    labels = {core: _labels(layout, parts) for core, parts in layout.held.items() if parts}
    longest = max((len(line) for lines in labels.values() for line in lines), default=1)
    size = _fitting(longest, _WIDTH - 6)
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="{_FONT}" class="shards">'
    )
    parts = [
        opening,
        f"<title>{words}</title>{style}",
        *_axes(columns, rows),
        *_unused(layout, columns, rows),
        *(_cell(layout, core, labels.get(core, ()), size) for core in layout.held),
        _text(_GAP, height - 7, words, _fitting(len(words), width)),
        "</svg>",
    ]
    return "\n".join(parts)


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
    for row, column in product(range(rows), range(columns)):
        if (column, row) not in layout.held:
            yield _box(_place((column, row)), 'stroke-opacity="0.15" stroke-dasharray="2 3"')


def _cell(layout: ShardLayout, core: Core, lines: Sequence[str], size: float) -> str:
    x, y = _place(core)
    parts = layout.held[core]
    about = f"core ({core[0]},{core[1]}): {_picture_text(parts)}"
    if not parts:
        empty = _box((x, y), 'stroke-opacity="0.4" stroke-dasharray="3 2"')
        label = _text(x + _WIDTH / 2, y + _HEIGHT / 2 + 3, "empty", 9, "middle", 0.55)
        return f"<g><title>{about}</title>{empty}{label}</g>"
    top = y + _HEIGHT / 2 - (len(lines) - 1) * 6 + 4
    labels = [
        _text(x + _WIDTH / 2, top + 12 * place, line, size, "middle")
        for place, line in enumerate(lines)
    ]
    filled = _filled(layout, parts[0], x, y)
    return f"<g><title>{about}</title>{filled}{_box((x, y))}{''.join(labels)}</g>"


def _filled(layout: ShardLayout, part: Part, x: int, y: int) -> str:
    """Draw how much of a shard is used; later shards are darker."""
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


def _labels(layout: ShardLayout, parts: Sequence[Part]) -> list[str]:
    """Return the label of a core: the part of the tensor that it holds."""
    if len(parts) > 1:
        numbers = [str(each.number) for each in parts[:_MAX_SHOWN]]
        more = ["..."] if len(parts) > _MAX_SHOWN else []
        return [f"{len(parts)} shards", ", ".join([*numbers, *more])]
    cut = [
        f"{start}-{end - 1}"
        for start, end, size in zip(parts[0].starts, parts[0].ends, layout.sizes, strict=True)
        if (start, end) != (0, size)
    ]
    return cut[-_MAX_SHOWN:] or ["all"]


def _picture_text(parts: Sequence[Part]) -> str:
    """Return the shards of a core as the text of a tooltip."""
    shown = []
    for each in parts[:_MAX_SHOWN]:
        ranges = zip(each.starts, each.ends, strict=True)
        shown.append(f"shard {each.number} [{', '.join(f'{a}:{b}' for a, b in ranges)}]")
    more = [f"{len(parts) - _MAX_SHOWN:,} more"] if len(parts) > _MAX_SHOWN else []
    return ", ".join([*shown, *more]) or "no shard"


def _fitting(letters: int, width: float) -> float:
    """Return the size of letters so that a number of them fits into a width."""
    return min(_MAX_FONT_SIZE, width / (_LETTER * max(letters, 1)))


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


_MAX_NAME_CHARS: Final = 80
# Names of arguments are data, and must not become parts of a path.
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_]+")


def write_pictures(row: CaseRow, directory: Path) -> tuple[Path, ...]:
    """Write a picture of each sharded tensor among the arguments of a case; return their paths.

    A file is named after the case and the place of the tensor; an existing one is replaced.
    UnusableResults when it cannot be written.
    """
    found: dict[Path, str] = {}
    for name, value in case_of(row.content).arguments:
        for place, part in walk(value, name):
            picture = shard_file(part) if isinstance(part, TensorSpec) else None
            if picture is not None:
                found[_unused_name(directory, row.case_id, place, found)] = picture
    try:
        if found:
            directory.mkdir(parents=True, exist_ok=True)
        for path, picture in found.items():
            path.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise UnusableResults(
            f"pictures cannot be written to {directory}: {error}; name another directory"
        ) from error
    return tuple(found)


def _unused_name(directory: Path, case_id: str, place: str, used: dict[Path, str]) -> Path:
    """Return a path for a tensor that no other tensor of the case has."""
    ours = (_UNUSUAL.sub("-", part) for part in (case_id[:SHORT_ID], place))
    name = "-".join(part.strip("-")[:_MAX_NAME_CHARS] for part in ours)
    path = directory / f"{name}.svg"
    number = 2
    while path in used:
        path = directory / f"{name}-{number}.svg"
        number += 1
    return path
