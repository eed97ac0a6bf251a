"""Compare two collections of cases: added, removed, moved, more or fewer calls.

Two cases that compute the same (of one semantic id) in another place or way are one *changed* case,
paired so that as few arguments as possible differ. A case with a value that no converter knows is
never equal to another by its id; here it is compared by the type of that value.

A name stands for what lies at that path, else for a run or a model of the trove. ``run:`` or
``model:`` before it says which; both are then found by a part of their name, if it is unique.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from optrove.errors import NotFound, NoTrove
from optrove.model.ops import is_hidden
from optrove.model.records import Query
from optrove.model.trove import CaseRow
from optrove.report.describe import argument_changes, drawn_arguments, folded
from optrove.report.outcomes import EXECUTED
from optrove.report.runs import SHORT_ID
from optrove.report.tables import Column, plural, table_lines
from optrove.serializer.described import case_of
from optrove.serializer.text import read
from optrove.trove.opening import reading
from optrove.trove.place import is_sqlite_file
from optrove.trove.query import ambiguous, model_named, models_meant, near, run_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from optrove.model.trove import Fidelity
    from optrove.report.describe import ArgumentChange
    from optrove.serializer.text import Json
    from optrove.trove.opening import Recovered
    from optrove.trove.reader import TroveReader


_TOKEN: Final = re.compile(r'("\$opaque":"(?:[^"\\]|\\.)*","token":)"(?:[^"\\]|\\.)*"')
_MOST_PAIRS: Final = 400
"""Of how many possible pairs the best are looked for; beyond, the most called are paired."""


class Kind(Enum):
    """How a case differs between A and B."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    RECOUNTED = "recounted"


@dataclass(frozen=True, slots=True)
class Counted:
    """A case of one side and how often it is called there.

    ``key`` is equal for cases that are the same; ``opaque`` tells that it is not the case_id.
    """

    key: str
    case_id: str
    semantic_id: str
    op: str
    calls: int
    opaque: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One case that differs; A or B is None where it is not there."""

    kind: Kind
    op: str
    a: Counted | None
    b: Counted | None


@dataclass(frozen=True, slots=True)
class OpChanges:
    """How the cases and calls of one op differ."""

    op: str
    added: int
    removed: int
    changed: int
    recounted: int
    calls_a: int
    calls_b: int


@dataclass(frozen=True, slots=True)
class Difference:
    """All in which two sides differ; ``opaque`` is how many cases were compared by type only."""

    changes: tuple[Change, ...]
    ops: tuple[OpChanges, ...]
    opaque: int = 0

    @property
    def is_equal(self) -> bool:
        """Tell whether nothing differs."""
        return not self.changes


def counted(rows: Iterable[CaseRow]) -> dict[str, Counted]:
    """Return the cases of one side by key."""
    found: dict[str, Counted] = {}
    for row in rows:
        blank = _TOKEN.sub(r'\1""', row.content)
        opaque = blank != row.content
        key = hashlib.sha256(blank.encode()).hexdigest() if opaque else row.case_id
        calls = row.calls + (found[key].calls if key in found else 0)
        found[key] = Counted(key, row.case_id, row.semantic_id, row.op, calls, opaque)
    return found


def compare(
    a: Mapping[str, Counted],
    b: Mapping[str, Counted],
    contents: Callable[[str], str],
    *,
    calls: bool = True,
) -> Difference:
    """Return in what A and B differ; ``contents`` gives the canonical JSON of a case by its id.

    Without ``calls``, a case that is merely called more or less often does not differ.
    """
    changes = _paired(a, b, contents)
    if calls:
        changes += [
            Change(Kind.RECOUNTED, a[key].op, a[key], b[key])
            for key in a.keys() & b.keys()
            if a[key].calls != b[key].calls
        ]
    ordered = sorted(changes, key=_order)
    both = {key for key in a.keys() & b.keys() if a[key].opaque}
    return Difference(tuple(ordered), _by_op(ordered, a, b), len(both))


def _paired(
    a: Mapping[str, Counted], b: Mapping[str, Counted], contents: Callable[[str], str]
) -> list[Change]:
    """Return what is on one side only, where possible as pairs that compute the same."""
    by_meaning: dict[tuple[str, str], tuple[list[Counted], list[Counted]]] = defaultdict(
        lambda: ([], [])
    )
    for side, (own, other) in enumerate(((a, b), (b, a))):
        for key in own.keys() - other.keys():
            by_meaning[own[key].op, own[key].semantic_id][side].append(own[key])
    changes = []
    for (op, _), (removed, added) in by_meaning.items():
        pairs = _pairs(removed, added, contents)
        changes += [Change(Kind.CHANGED, op, one, other) for one, other in pairs]
        paired = {each.key for pair in pairs for each in pair}
        changes += [Change(Kind.REMOVED, op, each, None) for each in removed if _out(each, paired)]
        changes += [Change(Kind.ADDED, op, None, each) for each in added if _out(each, paired)]
    return changes


def _out(case: Counted, paired: set[str]) -> bool:
    return case.key not in paired


def _pairs(
    removed: list[Counted], added: list[Counted], contents: Callable[[str], str]
) -> list[tuple[Counted, Counted]]:
    ours, theirs = (sorted(side, key=_most_called) for side in (removed, added))
    if min(len(ours), len(theirs)) == 0:
        return []
    if len(ours) * len(theirs) == 1 or len(ours) * len(theirs) > _MOST_PAIRS:
        return list(zip(ours, theirs, strict=False))
    cases = {each.key: case_of(contents(each.case_id)) for each in (*ours, *theirs)}
    possible = sorted(
        (len(argument_changes(cases[one.key], cases[other.key])), place, inner)
        for place, one in enumerate(ours)
        for inner, other in enumerate(theirs)
    )
    pairs: dict[int, int] = {}
    for _, place, inner in possible:
        if place not in pairs and inner not in pairs.values():
            pairs[place] = inner
    return [(ours[place], theirs[inner]) for place, inner in pairs.items()]


def _most_called(case: Counted) -> tuple[int, str]:
    return -case.calls, case.key


def _order(change: Change) -> tuple[str, int, int, str]:
    case = change.b or change.a
    calls, key = (0, "") if case is None else (case.calls, case.key)
    return change.op, list(Kind).index(change.kind), -calls, key


def _by_op(
    changes: Iterable[Change], a: Mapping[str, Counted], b: Mapping[str, Counted]
) -> tuple[OpChanges, ...]:
    """Return the ops that have changes, by name."""
    kinds = Counter((change.op, change.kind) for change in changes)
    calls_a, calls_b = (_calls(side) for side in (a, b))
    return tuple(
        OpChanges(
            op,
            added=kinds[op, Kind.ADDED],
            removed=kinds[op, Kind.REMOVED],
            changed=kinds[op, Kind.CHANGED],
            recounted=kinds[op, Kind.RECOUNTED],
            calls_a=calls_a[op],
            calls_b=calls_b[op],
        )
        for op in sorted({op for op, _ in kinds})
    )


def _calls(side: Mapping[str, Counted]) -> Counter[str]:
    calls: Counter[str] = Counter()
    for case in side.values():
        calls[case.op] += case.calls
    return calls


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
    """Return both sides and all changes for machines; see ``optrove.cli.ask`` for the keys."""
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


_RUN: Final = "run:"
_MODEL: Final = "model:"
_SHORTEST_RUN: Final = 4
_ID_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class Comparing:
    """How to compare: in which trove names are looked up, and which calls count."""

    store: str | None = None
    nested: bool = False
    all_ops: bool = False
    calls: bool = True


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two sides and in what they differ; ``content`` gives the canonical JSON of a case."""

    sides: tuple[Compared, Compared]
    difference: Difference
    content: Callable[[str], str]


@contextmanager
def comparing(
    names: tuple[str, str],
    how: Comparing,
    tell: Callable[[Recovered], object],
    warn: Callable[[Fidelity], object],
) -> Iterator[Comparison]:
    """Compare two things; ``warn`` hears of files of which parts were not understood."""
    with ExitStack() as stack:
        troves = _Troves(stack, how, tell)
        a, b = (_side(name, how, troves, warn) for name in names)
        if not a.cases and not b.cases:
            raise NotFound(
                f"neither {a.compared.name} nor {b.compared.name} holds a case to compare; "
                f"add --all-ops or --nested to count every call"
            )

        def content(case_id: str) -> str:
            found = a.content(case_id) or b.content(case_id)
            if found is None:
                raise NotFound(f"case {case_id} was removed while it was compared; try again")
            return found

        difference = compare(a.cases, b.cases, content, calls=how.calls)
        yield Comparison((a.compared, b.compared), difference, content)


@dataclass(frozen=True, slots=True)
class _Side:
    compared: Compared
    cases: dict[str, Counted]
    content: Callable[[str], str | None]


class _Troves:
    """The troves that are open for a comparison, each opened once and when it is needed."""

    def __init__(
        self, stack: ExitStack, how: Comparing, tell: Callable[[Recovered], object]
    ) -> None:
        self._stack = stack
        self._how = how
        self._tell = tell
        self._readers: dict[str | None, TroveReader] = {}

    def usual(self) -> TroveReader:
        """Return the trove in which runs and models are looked up."""
        return self.at(self._how.store)

    def at(self, place: str | None) -> TroveReader:
        """Return the trove at a place."""
        if place not in self._readers:
            self._readers[place] = self._stack.enter_context(reading(place, self._tell))
        return self._readers[place]


def _side(name: str, how: Comparing, troves: _Troves, warn: Callable[[Fidelity], object]) -> _Side:
    if name.startswith(_RUN):
        return _run_side(troves.usual(), run_named(troves.usual(), name[len(_RUN) :]), how)
    if name.startswith(_MODEL):
        return _model_side(troves.usual(), model_named(troves.usual(), name[len(_MODEL) :]), how)
    if "://" in name:
        return _trove_side(name, troves, how)
    path = Path(name).expanduser()
    if not path.exists():
        return _named_side(name, how, troves)
    if is_sqlite_file(path):
        return _trove_side(name, troves, how)
    return _file_side(path, how, warn)


def _named_side(name: str, how: Comparing, troves: _Troves) -> _Side:
    """Return the run or the model of the trove that a name stands for."""
    try:
        reader = troves.usual()
    except NoTrove as error:
        raise NotFound(f"there is no file {name!r}, and no run or model either: {error}") from error
    runs = reader.find_run(name) if len(name) >= _SHORTEST_RUN else ()
    models = models_meant(name, known := reader.model_names())
    if not runs and not models:
        nearest = near(name, known)
        about = f"; models like it: {nearest}" if nearest else ""
        raise NotFound(
            f"{name!r} is no file, no beginning of a run's id, and in no model's name{about}; "
            f"list what there is with: optrove runs, optrove models"
        )
    if len(runs) + len(models) > 1:
        found = [*(_RUN + run for run in runs), *(_MODEL + model for model in models)]
        raise ambiguous(f"{name!r} means {len(found)} things", found, "give one of these in full")
    return _run_side(reader, runs[0], how) if runs else _model_side(reader, models[0], how)


def _run_side(reader: TroveReader, run_id: str, how: Comparing) -> _Side:
    side = _read_side(reader, ("run", run_id), _query(how, run_id=run_id))
    (row,) = reader.runs(run_id)
    if not side.cases and row.run.kind in EXECUTED:
        short = run_id[:_ID_SHOWN]
        raise NotFound(
            f"run {short} ({row.run.source}) has executed recorded cases, and recorded none "
            f"itself; what came of it is compared by: optrove results {short} --compare RUN"
        )
    return side


def _model_side(reader: TroveReader, model: str, how: Comparing) -> _Side:
    return _read_side(reader, ("model", model), _query(how, model=model))


def _trove_side(name: str, troves: _Troves, how: Comparing) -> _Side:
    reader = troves.at(name)
    # The text of a place has no password.
    return _read_side(reader, ("trove", str(reader.place)), _query(how))


def _query(how: Comparing, *, run_id: str | None = None, model: str | None = None) -> Query:
    return Query(run_id=run_id, model=model, outermost_only=not how.nested, hidden_ops=how.all_ops)


def _read_side(reader: TroveReader, named: tuple[str, str], query: Query) -> _Side:
    cases = counted(reader.cases(query))

    def content(case_id: str) -> str | None:
        wanted = Query(case_id=case_id, outermost_only=False, hidden_ops=True)
        return next((row.content for row in reader.cases(wanted)), None)

    return _Side(_compared(named, cases), cases, content)


def _file_side(path: Path, how: Comparing, warn: Callable[[Fidelity], object]) -> _Side:
    # Reading files is the business of modules that a comparison of runs does without.
    from optrove.interop.detect import read_file
    from optrove.serializer.described import describe_case

    imported, fidelity = read_file(path)
    if fidelity.partly or fidelity.refused:
        warn(fidelity)
    rows: dict[str, CaseRow] = {}
    for one in (case for each in imported for case in each.cases):
        if how.all_ops or not is_hidden(one.case.op):
            found = describe_case(one.case)
            before = rows.get(found.case_id)
            calls = one.count + (0 if before is None else before.calls)
            rows[found.case_id] = CaseRow(
                case_id=found.case_id,
                semantic_id=found.semantic_id,
                family_id=found.family_id,
                op=found.op,
                replayable=found.replayable,
                calls=calls,
                content=found.content,
            )
    cases = counted(rows.values())

    def content(case_id: str) -> str | None:
        return rows[case_id].content if case_id in rows else None

    return _Side(_compared(("file", str(path)), cases), cases, content)


def _compared(named: tuple[str, str], cases: dict[str, Counted]) -> Compared:
    kind, name = named
    return Compared(name, kind, len(cases), sum(case.calls for case in cases.values()))
