"""Model configurations as trees, and the differences between two of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from optrove.model.case import Case, rewrite
from optrove.model.values import Struct, Value
from optrove.report.describe import ArgumentChange, argument_changes, value_text
from optrove.report.document import Change, Field, Fields, Paragraph, Section, paragraphs
from optrove.report.wording import plural
from optrove.runconfig.checking import gathered
from optrove.serializer.wire import encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from optrove.report.document import Node
    from optrove.runconfig.files import Checked, Inspected
    from optrove.serializer.text import Json

_ABSENT: Final = "(no such entry)"
_CLASS: Final = "python.dataclass:"


@dataclass(frozen=True, slots=True)
class EntryChange:
    """A difference between entries; ``paths`` are the entries that have it, with layer ranges."""

    paths: tuple[str, ...]
    changes: tuple[ArgumentChange, ...]


@dataclass(frozen=True, slots=True)
class Differences:
    """The names of two configurations, and their differences."""

    a: str
    b: str
    changes: tuple[EntryChange, ...]


def configs_document(found: Sequence[Inspected]) -> Iterator[Node]:
    """Yield configurations as trees."""
    for each in found:
        if len(found) > 1:
            yield Section(each.name, (_tree(each.entries),))
        else:
            yield _tree(each.entries)


def configs_data(found: Iterable[Inspected]) -> Iterator[dict[str, Json]]:
    """Yield the entries of configurations; ``docs/command-line.md`` describes the keys."""
    for each in found:
        for value, paths in _by_value(each.entries).items():
            yield {
                "file": str(each.file),
                "mode": each.mode or None,
                "paths": gathered(paths),
                "entries": len(paths),
                "value": encode(value),
            }


def differences(a: Inspected, b: Inspected) -> Differences:
    """Return the entries in which two configurations differ."""
    return Differences(a.name, b.name, tuple(entry_changes(a.entries, b.entries)))


def differences_document(found: Differences) -> Iterator[Node]:
    """Yield the differing entries, and each argument on both sides."""
    verdict = "differ" if found.changes else "are equal"
    yield Paragraph(f"{found.a} and {found.b} {verdict}")
    for change in found.changes:
        yield from paragraphs(change.paths[:-1])
        parts = tuple(Change(part.path, part.a, part.b) for part in change.changes)
        yield Section(change.paths[-1], parts)


def differences_data(found: Differences) -> dict[str, Json]:
    """Return the differences; ``docs/command-line.md`` describes the keys."""
    return {
        "a": found.a,
        "b": found.b,
        "equal": not found.changes,
        "changes": [
            {
                "paths": list(change.paths),
                "arguments": [
                    {"path": part.path, "a": part.a, "b": part.b} for part in change.changes
                ],
            }
            for change in found.changes
        ],
    }


def checks_document(found: Iterable[Checked]) -> Iterator[Node]:
    """Yield the faults of checked files."""
    for each in found:
        if each.faults:
            title = f"{each.file}: {plural(len(each.faults), 'fault')}"
            yield Section(title, paragraphs(map(str, each.faults)))
        else:
            yield Paragraph(f"{each.file}: good")


def checks_data(found: Iterable[Checked]) -> list[Json]:
    """Return the faults of checked files; ``docs/command-line.md`` describes the keys."""
    return [
        {
            "file": str(each.file),
            "signatures": each.signatures,
            "faults": [{"path": fault.path, "problem": fault.problem} for fault in each.faults],
        }
        for each in found
    ]


def _tree(entries: Mapping[str, Value]) -> Fields:
    """Return a configuration as a tree; the paths of equal entries are joined."""
    values = {
        path: value for value, paths in _by_value(entries).items() for path in gathered(paths)
    }
    ordered = sorted(values, key=_order)
    return Fields(tuple(_branches([(path.split("."), values[path]) for path in ordered])))


def _branches(entries: list[tuple[list[str], Value]]) -> Iterator[Field]:
    """Yield the fields of entries whose paths are steps; neighbors with one first step share it."""
    for step, group in groupby(entries, key=lambda entry: (entry[0][0], len(entry[0]) == 1)):
        (name, is_leaf), some = step, list(group)
        if is_leaf:
            yield from (Field(name, value_text(_plainly(value)), code=True) for _, value in some)
        else:
            inner = [(steps[1:], value) for steps, value in some]
            yield Field(name, parts=(Fields(tuple(_branches(inner))),))


def _by_value(entries: Mapping[str, Value]) -> dict[Value, list[str]]:
    """Return the paths of equal entries by value."""
    # By identity first: entries of equal layers are mostly one object, and hashing is slow.
    same: dict[int, tuple[Value, list[str]]] = {}
    for path, value in entries.items():
        same.setdefault(id(value), (value, []))[1].append(path)
    together: dict[Value, list[str]] = {}
    for value, paths in same.values():
        together.setdefault(value, []).extend(paths)
    return together


def entry_changes(a: Mapping[str, Value], b: Mapping[str, Value]) -> list[EntryChange]:
    """Return the entries in which two configurations differ; equal differences are joined."""
    pairs: dict[tuple[int, int], list[str]] = {}
    for path in (*a, *(path for path in b if path not in a)):
        pairs.setdefault((id(a.get(path)), id(b.get(path))), []).append(path)
    found: dict[tuple[ArgumentChange, ...], list[str]] = {}
    for paths in pairs.values():
        ours, theirs = a.get(paths[0]), b.get(paths[0])
        if ours != theirs:
            found.setdefault(_changes(ours, theirs), []).extend(paths)
    return [EntryChange(tuple(gathered(paths)), changes) for changes, paths in found.items()]


def _plainly(value: Value) -> Value:
    """Return a value whose dataclasses have their bare names."""
    return rewrite(value, _plain)


def _plain(value: Value) -> Value:
    if isinstance(value, Struct) and value.type.startswith(_CLASS):
        return Struct(value.type.rpartition(":")[2], value.fields)
    return value


def _changes(a: Value | None, b: Value | None) -> tuple[ArgumentChange, ...]:
    if a is None or b is None:
        texts = [_ABSENT if each is None else value_text(_plainly(each)) for each in (a, b)]
        return (ArgumentChange("", *texts),)
    ours, theirs = _plainly(a), _plainly(b)
    if isinstance(ours, Struct) and isinstance(theirs, Struct) and ours.type == theirs.type:
        return argument_changes(Case(ours.type, ours.fields), Case(theirs.type, theirs.fields))
    return (ArgumentChange("", value_text(ours), value_text(theirs)),)


def _order(path: str) -> list[tuple[int, int, str]]:
    """Return the sort key of a path: numbers by size, then names."""
    return [
        (0, int(first), step) if first.isdecimal() else (1, 0, step)
        for step in path.split(".")
        for first in [step.partition("-")[0].partition(",")[0]]
    ]
