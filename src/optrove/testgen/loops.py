"""Fold statements that repeat exactly, such as those of equal layers, into loops.

A block of statements repeats if each has the same text but for the names of variables, and if the
variables play the same parts: defined in the block, taken over from the repetition before, the same
in all repetitions, or another one in each, such as weights. Each variable that a block defines must
be deleted in it, or be taken over and deleted by the next repetition: then the loop frees memory
where the straight code did.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.testgen.expressions import formatted, prefixed, row, tuple_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

_WORTH: Final = 8
"""The fewest statements that a loop has to save."""
_MAX_BLOCK: Final = 400
_INDENT: Final = "    "
_WORD: Final = re.compile(r"\b[a-z_][a-z0-9_]*\b(?!=)")
_TARGET: Final = re.compile(r"([a-z_][a-z0-9_]*) = ")
_DELETION: Final = "del "
_BREAKS: Final = (
    (re.compile(r",\n\s*(?=[)\]}])"), ""),
    (re.compile(r"(?<=[(\[{])\n\s*"), ""),
    (re.compile(r"\n\s*"), " "),
)


@dataclass(frozen=True, slots=True)
class Statement:
    """The lines of a program that belong to one call, and a comment with its place."""

    site: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Block:
    """A statement with its variables, in the order in which they appear; ``shape`` lacks them."""

    shape: tuple[str, ...]
    variables: tuple[str, ...]
    defined: tuple[str, ...]
    deleted: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop in place of statements, and new names of variables for those that follow."""

    lines: tuple[str, ...]
    renamed: Mapping[str, str]


def folded(statements: Sequence[Statement], names: Collection[str]) -> list[str]:
    """Return the lines of statements, with loops where blocks of them repeat.

    ``names`` are those of all variables.
    """
    known = frozenset(names)
    blocks = [_block(each, known) for each in statements]
    numbers: dict[tuple[str, ...], int] = {}
    shapes = [numbers.setdefault(each.shape, len(numbers)) for each in blocks]
    last_use = {name: at for at, each in enumerate(blocks) for name in each.variables}
    lines: list[str] = []
    renamed: dict[str, str] = {}
    site, at = "", 0
    while at < len(statements):
        loop, length = _loop_at(at, statements, blocks, shapes, last_use)
        if loop is None:
            statement = statements[at]
            lines += [statement.site] if statement.site not in ("", site) else []
            lines += [_with_names(line, renamed) for line in statement.lines]
            site, at = statement.site or site, at + 1
        else:
            lines += [_with_names(line, renamed) for line in loop.lines]
            renamed |= {old: renamed.get(new, new) for old, new in loop.renamed.items()}
            site, at = "", at + length
    return lines


def _loop_at(
    at: int,
    statements: Sequence[Statement],
    blocks: Sequence[_Block],
    shapes: Sequence[int],
    last_use: Mapping[str, int],
) -> tuple[_Loop | None, int]:
    """Return the longest loop from a place on, and how many statements it replaces.

    None if no block repeats here, or if the loop should begin later.
    """
    for length, count in _repeats(shapes, at):
        loop = _loop(statements, blocks, (at, length, count), last_use)
        if loop is None:
            continue
        start = at + _natural_start(statements[at : at + length])
        moved = (start, length, count)
        is_later = start > at and _repeats_from(shapes, moved)
        if is_later and _loop(statements, blocks, moved, last_use) is not None:
            break
        return loop, length * count
    return None, 0


def _with_names(line: str, renamed: Mapping[str, str]) -> str:
    return _WORD.sub(lambda word: renamed.get(word[0], word[0]), line)


def _block(statement: Statement, known: frozenset[str]) -> _Block:
    variables: list[str] = []

    def blank(word: re.Match[str]) -> str:
        if word[0] not in known:
            return word[0]
        variables.append(word[0])
        return "?"

    shape = (statement.site, *(_WORD.sub(blank, _on_one_line(line)) for line in statement.lines))
    targets = (_TARGET.match(line) for line in statement.lines)
    gone = [line.removeprefix(_DELETION) for line in statement.lines if line.startswith(_DELETION)]
    return _Block(
        shape,
        tuple(variables),
        tuple(target[1] for target in targets if target is not None),
        frozenset(name for line in gone for name in line.split(", ")),
    )


def _on_one_line(text: str) -> str:
    """Return a statement without its line breaks, which depend on the lengths of names."""
    for pattern, replacement in _BREAKS:
        text = pattern.sub(replacement, text)
    return text


def _natural_start(statements: Sequence[Statement]) -> int:
    """Return where a round begins in the model: with the first of its lines there."""
    lines = [int(each.site.rpartition(":")[2] or 0) for each in statements]
    return lines.index(min(lines))


def _repeats_from(shapes: Sequence[int], where: tuple[int, int, int]) -> bool:
    at, length, count = where
    return shapes[at : at + length * count] == [*shapes[at : at + length]] * count


def _repeats(shapes: Sequence[int], at: int) -> Iterator[tuple[int, int]]:
    """Yield lengths of blocks that repeat from a place on, and how often: the longest loop first.

    Of loops over the same statements, the one with the shortest block comes first.
    """
    found = []
    for length in range(1, min(_MAX_BLOCK, (len(shapes) - at) // 2) + 1):
        if shapes[at] != shapes[at + length]:
            continue
        block, count = shapes[at : at + length], 1
        while shapes[at + count * length : at + (count + 1) * length] == block:
            count += 1
        if (count - 1) * length >= _WORTH:
            found.append((length, count))
    yield from sorted(found, key=lambda each: (-each[0] * each[1], each[0]))


@dataclass(frozen=True, slots=True)
class _Parts:
    """The parts that variables play in all rounds of a loop, by their names in the first one.

    ``carried`` ones are, in later rounds, the variable that the round before has ``defined`` at
    this place; ``varying`` ones are others in each round.
    """

    carried: Mapping[str, int]
    varying: Mapping[str, tuple[str, ...]]
    defined: Sequence[Sequence[str]]

    def free_alike(self, deleted: frozenset[str]) -> bool:
        """Return whether a loop frees what the rounds do, whose first one has ``deleted`` these."""
        passed_on = {self.defined[0][place] for place in self.carried.values()}
        return (
            deleted.issuperset(self.carried)
            and deleted.isdisjoint(self.varying)
            and all(name in deleted | passed_on for name in self.defined[0])
        )


def _loop(
    statements: Sequence[Statement],
    blocks: Sequence[_Block],
    where: tuple[int, int, int],
    last_use: Mapping[str, int],
) -> _Loop | None:
    """Return the loop of repeated blocks; None if their variables play different parts."""
    at, length, count = where
    rounds = [blocks[at + n * length : at + (n + 1) * length] for n in range(count)]
    parts = _parts(rounds)
    deleted = frozenset(name for each in rounds[0] for name in each.deleted)
    if parts is None or not parts.free_alike(deleted):
        return None
    end = at + length * count
    if any(last_use[name] >= end for own in parts.defined[:-1] for name in own):
        return None
    return _written(statements[at : at + length], count, parts)


def _parts(rounds: Sequence[Sequence[_Block]]) -> _Parts | None:
    """Return the parts of the variables of rounds; None if one plays different parts."""
    defined = [[name for each in one for name in each.defined] for one in rounds]
    inside = {name for own in defined for name in own}
    carried: dict[str, int] = {}
    varying: dict[str, tuple[str, ...]] = {}
    for column in zip(*([n for b in one for n in b.variables] for one in rounds), strict=True):
        first = column[0]
        if first in defined[0]:
            place = defined[0].index(first)
            if any(name != own[place] for name, own in zip(column, defined, strict=True)):
                return None
        elif inside.isdisjoint(column):
            if len({*column}) > 1 and varying.setdefault(first, column) != column:
                return None
        else:
            before = _place_before(column, defined)
            if before is None or carried.setdefault(first, before) != before:
                return None
    if carried.keys() & varying.keys() or len({*carried.values()}) != len(carried):
        return None
    return _Parts(carried, varying, defined)


def _place_before(column: Sequence[str], defined: Sequence[Sequence[str]]) -> int | None:
    """Return which variable of the round before all but the first are; None for none."""
    pairs = list(zip(column[1:], defined[:-1], strict=True))
    if any(name not in own for name, own in pairs):
        return None
    places = {own.index(name) for name, own in pairs}
    return places.pop() if len(places) == 1 else None


def _written(statements: Sequence[Statement], count: int, parts: _Parts) -> _Loop:
    carried, varying, defined = parts.carried, parts.varying, parts.defined
    inner = {first: f"{first}_now" for first in carried} | {
        first: f"{first}_each" for first in varying
    }
    before = [f"{inner[first]} = {first}" for first in carried]
    before += [f"del {', '.join(carried)}"] if carried else []
    body: list[str] = []
    site = ""
    for each in statements:
        body += [each.site] if each.site not in ("", site) else []
        body += [_with_names(line, inner) for line in each.lines]
        site = each.site or site
    over = {defined[0][place]: inner[first] for first, place in carried.items()}
    body += [f"{new} = {old}" for old, new in over.items()]
    body += [f"del {', '.join(over)}"] if over else []
    head = _head(varying, inner, count)
    margined = [_INDENT + line.replace("\n", f"\n{_INDENT}") for line in body]
    last = {
        name: over.get(first, first) for first, name in zip(defined[0], defined[-1], strict=True)
    }
    return _Loop((*before, head, *margined), {old: new for old, new in last.items() if old != new})


def _head(varying: Mapping[str, tuple[str, ...]], inner: Mapping[str, str], count: int) -> str:
    if not varying:
        return f"for _ in range({count}):"
    names = ", ".join(inner[first] for first in varying)
    rounds = [tuple_of(each) for each in zip(*varying.values(), strict=True)]
    several = row(rounds if len(varying) > 1 else next(iter(varying.values())))
    return formatted(prefixed(f"for {names} in ", several), suffix=":")
