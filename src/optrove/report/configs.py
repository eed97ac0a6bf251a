"""Draw model configurations as trees, and how two of them differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.model.case import Case, rewrite
from optrove.model.values import Struct, Value
from optrove.report.describe import ArgumentChange, argument_changes, drawn, folded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_INDENT: Final = "  "
_ABSENT: Final = "(no such entry)"
_CLASS: Final = "python.dataclass:"
_WIDTH: Final = 100


@dataclass(frozen=True, slots=True)
class EntryChange:
    """What differs in one entry; ``paths`` are the entries in which it does, ranges of layers."""

    paths: tuple[str, ...]
    changes: tuple[ArgumentChange, ...]


Gather: TypeAlias = "Callable[[Iterable[str]], list[str]]"


def tree_lines(entries: Mapping[str, Value], gather: Gather, width: int | None) -> Iterator[str]:
    """Yield a configuration as an indented tree; ``gather`` puts alike paths together."""
    together = alike_entries(entries)
    values = {path: value for value, paths in together.items() for path in gather(paths)}
    shown: list[str] = []
    for path in sorted(values, key=_order):
        steps = path.split(".")
        same = 0
        while same < min(len(shown), len(steps) - 1) and shown[same] == steps[same]:
            same += 1
        for depth in range(same, len(steps) - 1):
            yield f"{_INDENT * depth}{steps[depth]}"
        label = f"{_INDENT * (len(steps) - 1)}{steps[-1]}: "
        yield from folded(label, drawn(plainly(values[path])), width or _WIDTH)
        shown = steps[:-1]


def alike_entries(entries: Mapping[str, Value]) -> dict[Value, list[str]]:
    """Return the paths of equal entries together."""
    # By identity first: entries of alike layers are mostly one object, and hashing takes long.
    same: dict[int, tuple[Value, list[str]]] = {}
    for path, value in entries.items():
        same.setdefault(id(value), (value, []))[1].append(path)
    together: dict[Value, list[str]] = {}
    for value, paths in same.values():
        together.setdefault(value, []).extend(paths)
    return together


def entry_changes(
    a: Mapping[str, Value], b: Mapping[str, Value], gather: Gather
) -> list[EntryChange]:
    """Return the entries in which two configurations differ, alike differences together."""
    pairs: dict[tuple[int, int], list[str]] = {}
    for path in (*a, *(path for path in b if path not in a)):
        pairs.setdefault((id(a.get(path)), id(b.get(path))), []).append(path)
    found: dict[tuple[ArgumentChange, ...], list[str]] = {}
    for paths in pairs.values():
        ours, theirs = a.get(paths[0]), b.get(paths[0])
        if ours != theirs:
            found.setdefault(_changes(ours, theirs), []).extend(paths)
    return [EntryChange(tuple(gather(paths)), changes) for changes, paths in found.items()]


def change_lines(changes: Iterable[EntryChange]) -> Iterator[str]:
    """Yield differences as text: the entries, then each argument on the one and the other side."""
    for change in changes:
        yield from change.paths
        for part in change.changes:
            label = f"{_INDENT}{part.path}: " if part.path else _INDENT
            yield f"{label}{part.a} -> {part.b}"


def plainly(value: Value) -> Value:
    """Return a value whose dataclasses are called by their names alone."""
    return rewrite(value, _plain)


def _plain(value: Value) -> Value:
    if isinstance(value, Struct) and value.type.startswith(_CLASS):
        return Struct(value.type.rpartition(":")[2], value.fields)
    return value


def _changes(a: Value | None, b: Value | None) -> tuple[ArgumentChange, ...]:
    if a is None or b is None:
        texts = [_ABSENT if each is None else drawn(plainly(each)) for each in (a, b)]
        return (ArgumentChange("", *texts),)
    ours, theirs = plainly(a), plainly(b)
    if isinstance(ours, Struct) and isinstance(theirs, Struct) and ours.type == theirs.type:
        return argument_changes(Case(ours.type, ours.fields), Case(theirs.type, theirs.fields))
    return (ArgumentChange("", drawn(ours), drawn(theirs)),)


def _order(path: str) -> list[tuple[int, int, str]]:
    """Sort names by their letters and numbers by their size, names behind numbers."""
    return [
        (0, int(first), step) if first.isdecimal() else (1, 0, step)
        for step in path.split(".")
        for first in [step.partition("-")[0].partition(",")[0]]
    ]
