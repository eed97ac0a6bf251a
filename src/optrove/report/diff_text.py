"""Draw how two collections of cases differ, as text of 80 columns and as data for machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.codec.described import case_of
from optrove.codec.text import read
from optrove.report.argument_changes import argument_changes
from optrove.report.describe import drawn_arguments, folded
from optrove.report.diff import Kind
from optrove.report.runs_text import SHORT_ID
from optrove.report.tables import Column, plural, table_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from optrove.codec.text import Json
    from optrove.report.argument_changes import ArgumentChange
    from optrove.report.diff import Change, Counted, Difference

_WIDTH: Final = 80
_INDENT: Final = " " * 4
_COLUMNS: Final = (
    Column("op", flexible=True),
    Column("added", right=True),
    Column("removed", right=True),
    Column("changed", right=True),
    Column("more/less often", right=True),
    Column("calls in A", right=True),
    Column("in B", right=True),
)

_WORDS: Final = {
    Kind.ADDED: "added",
    Kind.REMOVED: "removed",
    Kind.CHANGED: "changed",
    Kind.RECOUNTED: "called more or less often",
}


@dataclass(frozen=True, slots=True)
class Compared:
    """What stood on one side: how it is called, what kind of thing it is, and how much it holds."""

    name: str
    kind: str
    cases: int
    calls: int


def diff_lines(
    sides: tuple[Compared, Compared], difference: Difference, width: int | None = None
) -> list[str]:
    """Return both sides, a table of the ops that differ, and a line that sums it up."""
    lines = [
        f"{letter}: {side.kind} {_shown(side)}, {plural(side.cases, 'case')}, "
        f"{plural(side.calls, 'call')}"
        for letter, side in zip("AB", sides, strict=True)
    ]
    if difference.ops:
        cells = [
            (
                op.op,
                *map(_count, (op.added, op.removed, op.changed, op.recounted)),
                *(f"{calls:,}" for calls in (op.calls_a, op.calls_b)),
            )
            for op in difference.ops
        ]
        lines += ["", *table_lines(_COLUMNS, cells, width)]
    return [*lines, "", *_verdict(difference)]


def change_lines(difference: Difference, contents: Callable[[str], str]) -> Iterator[str]:
    """Yield every case that differs, by op; ``contents`` gives the JSON of a case by its id."""
    op = None
    for change in difference.changes:
        if change.op != op:
            op = change.op
            yield from ("", op)
        yield from _change(change, contents)


def diff_data(
    sides: tuple[Compared, Compared], difference: Difference, contents: Callable[[str], str]
) -> Json:
    """Return both sides and all changes for machines; see ``optrove.cli_query`` for the keys."""
    changes: dict[str, list[Json]] = {kind.value: [] for kind in Kind}
    for change in difference.changes:
        changes[change.kind.value].append(_change_data(change, contents))
    return {
        "a": _side_data(sides[0]),
        "b": _side_data(sides[1]),
        "equal": difference.is_equal,
        "opaque": difference.opaque,
        "ops": [
            {
                "op": op.op,
                "added": op.added,
                "removed": op.removed,
                "changed": op.changed,
                "recounted": op.recounted,
                "calls_a": op.calls_a,
                "calls_b": op.calls_b,
            }
            for op in difference.ops
        ],
        **changes,
    }


def _shown(side: Compared) -> str:
    return side.name[:SHORT_ID] if side.kind == "run" else side.name


def _verdict(difference: Difference) -> list[str]:
    kinds = [change.kind for change in difference.changes]
    counts = [f"{kinds.count(kind):,} {_WORDS[kind]}" for kind in Kind]
    text = "nothing differs" if difference.is_equal else f"cases: {', '.join(counts)}"
    if not difference.opaque:
        return [text]
    cases = plural(difference.opaque, "case")
    return [text, f"{cases} with values that no converter knows: compared by their types only"]


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


def _change(change: Change, contents: Callable[[str], str]) -> Iterator[str]:
    a, b = change.a, change.b
    if a is not None and b is not None:
        names = dict.fromkeys(side.case_id[:SHORT_ID] for side in (a, b))
        calls = plural(b.calls, "call")
        if a.calls != b.calls:
            calls = f"{a.calls:,} -> {calls}"
        shown = names if change.kind is Kind.CHANGED else list(names)[:1]
        yield f"  {_WORDS[change.kind]}: case {' -> '.join(shown)}, {calls}"
        if change.kind is Kind.CHANGED:
            for part in _argument_changes(a, b, contents):
                yield from _part_lines(part)
        return
    case = a or b
    if case is not None:
        calls = plural(case.calls, "call")
        yield f"  {_WORDS[change.kind]}: case {case.case_id[:SHORT_ID]}, {calls}"
        arguments = drawn_arguments(case_of(contents(case.case_id)), _WIDTH - len(_INDENT))
        yield from (_INDENT + line for line in arguments)


def _argument_changes(
    a: Counted, b: Counted, contents: Callable[[str], str]
) -> tuple[ArgumentChange, ...]:
    return argument_changes(*(case_of(contents(side.case_id)) for side in (a, b)))


def _part_lines(part: ArgumentChange) -> list[str]:
    line = f"{_INDENT}{part.path}: {part.a} -> {part.b}"
    if len(line) <= _WIDTH:
        return [line]
    first = folded(f"{_INDENT}{part.path}: ", part.a, _WIDTH)
    return [*first, *folded(f"{_INDENT}  -> ", part.b, _WIDTH)]


def _side_data(side: Compared) -> Json:
    return {"name": side.name, "kind": side.kind, "cases": side.cases, "calls": side.calls}


def _change_data(change: Change, contents: Callable[[str], str]) -> Json:
    a, b = change.a, change.b
    if a is None or b is None:
        case = a or b
        return None if case is None else _case_data(case, contents)
    data: dict[str, Json] = {
        "op": change.op,
        "case_a": a.case_id,
        "case_b": b.case_id,
        "calls_a": a.calls,
        "calls_b": b.calls,
    }
    if change.kind is Kind.CHANGED:
        parts = _argument_changes(a, b, contents)
        data["semantic_id"] = a.semantic_id
        data["arguments"] = [{"path": part.path, "a": part.a, "b": part.b} for part in parts]
    return data


def _case_data(case: Counted, contents: Callable[[str], str]) -> Json:
    return {
        "op": case.op,
        "case_id": case.case_id,
        "semantic_id": case.semantic_id,
        "calls": case.calls,
        "arguments": read(contents(case.case_id))["arguments"],
    }
