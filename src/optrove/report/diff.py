"""Compare the cases of two runs, models, troves or files: added, removed, changed, recounted.

Two cases with the same semantic id in another placement are one *changed* case, paired so that as
few arguments as possible differ. A case with a value that no converter knows never equals another
one by its id; it is compared by the type of that value.

A name is a path if a file is there, else a run or a model of the trove. With the prefix ``run:`` or
``model:``, a unique part of the name is enough.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from optrove.errors import NotFound, NoTrove
from optrove.model.ops import is_listed
from optrove.model.records import Query
from optrove.model.trove import CaseRow
from optrove.report.describe import argument_changes, argument_fields
from optrove.report.document import Change, Column, Paragraph, Section, count_cell, table
from optrove.report.wording import SHORT_ID, plural
from optrove.serializer.described import case_of
from optrove.serializer.text import read
from optrove.trove.opening import reading
from optrove.trove.place import is_sqlite_file
from optrove.trove.query import ambiguous, model_named, models_meant, near, run_named
from optrove.trove.sessions import EXECUTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from optrove.model.case import Case
    from optrove.model.trove import Fidelity
    from optrove.report.document import Node
    from optrove.serializer.text import Json
    from optrove.trove.opening import Recovered
    from optrove.trove.reader import TroveReader


_TOKEN: Final = re.compile(r'("\$opaque":"(?:[^"\\]|\\.)*","token":)"(?:[^"\\]|\\.)*"')
_MAX_PAIRS: Final = 400
"""The most possible pairs of which the best are found; beyond, the most called are paired."""


class Kind(Enum):
    """The difference of a case between A and B."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    RECOUNTED = "recounted"


@dataclass(frozen=True, slots=True)
class CountedCase:
    """A case of one side with its calls.

    Equal cases have the same ``key``, which is the case_id unless the case is ``opaque``.
    """

    key: str
    case_id: str
    semantic_id: str
    op: str
    calls: int
    opaque: bool = False


@dataclass(frozen=True, slots=True)
class CaseChange:
    """One case that differs; A or B is None where that side has no such case."""

    kind: Kind
    op: str
    a: CountedCase | None
    b: CountedCase | None

    @property
    def case(self) -> CountedCase:
        """The case of B, or of A where B has no such case."""
        found = self.b or self.a
        assert found is not None  # noqa: S101 - one of them is given; narrows the type
        return found


@dataclass(frozen=True, slots=True)
class OpChanges:
    """The differing cases of one op, and its calls on both sides."""

    op: str
    added: int
    removed: int
    changed: int
    recounted: int
    calls_a: int
    calls_b: int


@dataclass(frozen=True, slots=True)
class CaseSide:
    """One side: its name, its kind, its cases by key, and a reader of their canonical JSON."""

    name: str
    kind: str
    cases: dict[str, CountedCase]
    content: Callable[[str], str | None]

    @property
    def calls(self) -> int:
        """The calls of all cases."""
        return sum(case.calls for case in self.cases.values())


@dataclass(frozen=True, slots=True)
class CaseComparison:
    """Two sides and their differences; ``opaque`` counts cases that were compared by type only."""

    a: CaseSide
    b: CaseSide
    changes: tuple[CaseChange, ...] = ()
    ops: tuple[OpChanges, ...] = ()
    opaque: int = 0

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return not self.changes

    def case(self, case_id: str) -> Case:
        """Return a case of either side."""
        return case_of(self.content(case_id))

    def content(self, case_id: str) -> str:
        """Return the canonical JSON of a case of either side."""
        found = self.a.content(case_id) or self.b.content(case_id)
        if found is None:
            raise NotFound(f"case {case_id} was removed while it was compared; try again")
        return found


def counted(rows: Iterable[CaseRow]) -> dict[str, CountedCase]:
    """Return the cases of one side by key."""
    found: dict[str, CountedCase] = {}
    for row in rows:
        blank = _TOKEN.sub(r'\1""', row.content)
        opaque = blank != row.content
        key = hashlib.sha256(blank.encode()).hexdigest() if opaque else row.case_id
        calls = row.calls + (found[key].calls if key in found else 0)
        found[key] = CountedCase(key, row.case_id, row.semantic_id, row.op, calls, opaque)
    return found


def compare(a: CaseSide, b: CaseSide, *, calls: bool = True) -> CaseComparison:
    """Return the differences of A and B.

    Without ``calls``, cases do not differ by their number of calls.
    """
    sides = CaseComparison(a, b)
    changes = _paired(sides)
    both = [(a.cases[key], b.cases[key]) for key in a.cases.keys() & b.cases.keys()]
    if calls:
        changes += [
            CaseChange(Kind.RECOUNTED, one.op, one, other)
            for one, other in both
            if one.calls != other.calls
        ]
    changes.sort(key=_order)
    opaque = sum(one.opaque for one, _ in both)
    return replace(sides, changes=tuple(changes), ops=_by_op(changes, a, b), opaque=opaque)


def _paired(sides: CaseComparison) -> list[CaseChange]:
    """Return the cases of one side only, where possible as pairs with the same semantic id."""
    a, b = sides.a.cases, sides.b.cases
    by_meaning: dict[tuple[str, str], tuple[list[CountedCase], list[CountedCase]]] = defaultdict(
        lambda: ([], [])
    )
    for side, (own, other) in enumerate(((a, b), (b, a))):
        for key in own.keys() - other.keys():
            by_meaning[own[key].op, own[key].semantic_id][side].append(own[key])
    changes = []
    for (op, _), (removed, added) in by_meaning.items():
        pairs = _pairs(removed, added, sides)
        paired = {each.key for pair in pairs for each in pair}
        changes += [CaseChange(Kind.CHANGED, op, one, other) for one, other in pairs]
        changes += [
            CaseChange(Kind.REMOVED, op, each, None) for each in removed if each.key not in paired
        ]
        changes += [
            CaseChange(Kind.ADDED, op, None, each) for each in added if each.key not in paired
        ]
    return changes


def _pairs(
    removed: list[CountedCase], added: list[CountedCase], sides: CaseComparison
) -> list[tuple[CountedCase, CountedCase]]:
    ours, theirs = (
        sorted(side, key=lambda case: (-case.calls, case.key)) for side in (removed, added)
    )
    if min(len(ours), len(theirs)) == 0:
        return []
    if len(ours) * len(theirs) == 1 or len(ours) * len(theirs) > _MAX_PAIRS:
        return list(zip(ours, theirs, strict=False))
    cases = {each.key: sides.case(each.case_id) for each in (*ours, *theirs)}
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


def _order(change: CaseChange) -> tuple[str, int, int, str]:
    case = change.case
    return change.op, list(Kind).index(change.kind), -case.calls, case.key


def _by_op(changes: Iterable[CaseChange], a: CaseSide, b: CaseSide) -> tuple[OpChanges, ...]:
    """Return the ops that have changes, by name."""
    kinds = Counter((change.op, change.kind) for change in changes)
    calls: Counter[tuple[str, str]] = Counter()
    for side, field in ((a, "calls_a"), (b, "calls_b")):
        for case in side.cases.values():
            calls[case.op, field] += case.calls
    return tuple(
        OpChanges(
            op,
            **{kind.value: kinds[op, kind] for kind in Kind},
            calls_a=calls[op, "calls_a"],
            calls_b=calls[op, "calls_b"],
        )
        for op in sorted({op for op, _ in kinds})
    )


_COLUMNS: Final = (
    Column("op", flexible=True),
    *(Column(name, right=True) for name in ("added", "removed", "changed", "more/less often")),
    *(Column(name, right=True) for name in ("calls in A", "in B")),
)

_WORDS: Final = {
    **{kind: kind.value for kind in Kind},
    Kind.RECOUNTED: "called more or less often",
}


def diff_document(found: CaseComparison, *, brief: bool) -> Iterator[Node]:
    """Yield both sides, a table of the ops that differ, and unless ``brief`` every change."""
    for letter, side in (("A", found.a), ("B", found.b)):
        name = side.name[:SHORT_ID] if side.kind == "run" else side.name
        counts = f"{plural(len(side.cases), 'case')}, {plural(side.calls, 'call')}"
        yield Paragraph(f"{letter}: {side.kind} {name}, {counts}")
    if found.ops:
        yield table(
            _COLUMNS,
            [
                (
                    op.op,
                    *map(count_cell, (op.added, op.removed, op.changed, op.recounted)),
                    op.calls_a,
                    op.calls_b,
                )
                for op in found.ops
            ],
        )
    kinds = [change.kind for change in found.changes]
    counted = ", ".join(f"{kinds.count(kind):,} {_WORDS[kind]}" for kind in Kind)
    yield Paragraph("nothing differs" if found.is_equal else f"cases: {counted}")
    if found.opaque:
        cases = plural(found.opaque, "case")
        yield Paragraph(
            f"{cases} with values that no converter knows: compared by their types only"
        )
    if not brief:
        # Changes are ordered by op.
        for op, changes in groupby(found.changes, key=lambda change: change.op):
            yield Section(op, tuple(_change_section(each, found) for each in changes))


def _change_section(change: CaseChange, found: CaseComparison) -> Section:
    a, b = change.a, change.b
    words = _WORDS[change.kind]
    if a is None or b is None:
        case = change.case
        title = f"{words}: case {case.case_id[:SHORT_ID]}, {plural(case.calls, 'call')}"
        return Section(title, (argument_fields(found.case(case.case_id)),))
    calls = plural(b.calls, "call")
    if a.calls != b.calls:
        calls = f"{a.calls:,} -> {calls}"
    if change.kind is not Kind.CHANGED:
        return Section(f"{words}: case {a.case_id[:SHORT_ID]}, {calls}", ())
    ids = " -> ".join(dict.fromkeys(side.case_id[:SHORT_ID] for side in (a, b)))
    parts = argument_changes(found.case(a.case_id), found.case(b.case_id))
    return Section(
        f"{words}: case {ids}, {calls}",
        tuple(Change(part.path, part.a, part.b) for part in parts),
    )


def diff_data(found: CaseComparison) -> Json:
    """Return both sides and all changes; ``docs/command-line.md`` describes the keys."""
    changes: dict[str, list[Json]] = {kind.value: [] for kind in Kind}
    for change in found.changes:
        changes[change.kind.value].append(_change_data(change, found))
    return {
        "a": _side_data(found.a),
        "b": _side_data(found.b),
        "equal": found.is_equal,
        "opaque": found.opaque,
        "ops": [asdict(op) for op in found.ops],
        **changes,
    }


def _side_data(side: CaseSide) -> Json:
    return {"name": side.name, "kind": side.kind, "cases": len(side.cases), "calls": side.calls}


def _change_data(change: CaseChange, found: CaseComparison) -> Json:
    a, b = change.a, change.b
    if a is None or b is None:
        case = change.case
        return {
            "op": case.op,
            "case_id": case.case_id,
            "semantic_id": case.semantic_id,
            "calls": case.calls,
            "arguments": read(found.content(case.case_id))["arguments"],
        }
    data: dict[str, Json] = {
        "op": change.op,
        "case_a": a.case_id,
        "case_b": b.case_id,
        "calls_a": a.calls,
        "calls_b": b.calls,
    }
    if change.kind is Kind.CHANGED:
        parts = argument_changes(found.case(a.case_id), found.case(b.case_id))
        data["semantic_id"] = a.semantic_id
        data["arguments"] = [asdict(part) for part in parts]
    return data


_RUN: Final = "run:"
_MODEL: Final = "model:"
_MIN_RUN_CHARS: Final = 4


@contextmanager
def comparing(
    names: tuple[str, str],
    store: str | None,
    on_recovered: Callable[[Recovered], object],
    warn: Callable[[Fidelity], object],
    *,
    query: Query | None = None,
    calls: bool = True,
) -> Iterator[CaseComparison]:
    """Compare two things while their troves are open.

    ``query`` chooses the cases that count. ``warn`` is called for files that were not understood
    completely. Raises NotFound when neither side has a case.
    """
    with ExitStack() as stack:
        sides = _Sides(stack, store, on_recovered, warn, query or Query())
        a, b = map(sides.named, names)
        if not a.cases and not b.cases:
            raise NotFound(
                f"neither {a.name} nor {b.name} holds a case to compare; "
                f"add --all-ops or --nested to count every call"
            )
        yield compare(a, b, calls=calls)


class _Sides:
    """Finds sides by name, and opens each trove once."""

    def __init__(
        self,
        stack: ExitStack,
        store: str | None,
        on_recovered: Callable[[Recovered], object],
        warn: Callable[[Fidelity], object],
        query: Query,
    ) -> None:
        self._stack = stack
        self._store = store
        self._on_recovered = on_recovered
        self._warn = warn
        self._query = query
        self._readers: dict[str | None, TroveReader] = {}

    def named(self, name: str) -> CaseSide:
        """Return the side with this name."""
        if name.startswith(_RUN):
            reader = self._reader(self._store)
            return self._of_run(reader, run_named(reader, name[len(_RUN) :]))
        if name.startswith(_MODEL):
            reader = self._reader(self._store)
            return self._of_model(reader, model_named(reader, name[len(_MODEL) :]))
        path = Path(name).expanduser()
        if "://" in name or (path.exists() and is_sqlite_file(path)):
            reader = self._reader(name)
            # The text of a place has no password.
            return _read_side(reader, ("trove", str(reader.place)), self._query)
        return self._of_file(path) if path.exists() else self._of_run_or_model(name)

    def _reader(self, place: str | None) -> TroveReader:
        if place not in self._readers:
            self._readers[place] = self._stack.enter_context(reading(place, self._on_recovered))
        return self._readers[place]

    def _of_run_or_model(self, name: str) -> CaseSide:
        try:
            reader = self._reader(self._store)
        except NoTrove as error:
            raise NotFound(
                f"there is no file {name!r}, and no run or model either: {error}"
            ) from error
        runs = reader.find_run(name) if len(name) >= _MIN_RUN_CHARS else ()
        models = models_meant(name, known := reader.model_names())
        if not runs and not models:
            nearest = near(name, known)
            about = f"; models like it: {nearest}" if nearest else ""
            raise NotFound(
                f"{name!r} is not a file, the start of a run id, or part of a model's name{about}; "
                f"list runs and models with: optrove runs, optrove models"
            )
        if len(runs) + len(models) > 1:
            found = [*(_RUN + run for run in runs), *(_MODEL + model for model in models)]
            raise ambiguous(
                f"{name!r} means {len(found)} things", found, "give one of these in full"
            )
        return self._of_run(reader, runs[0]) if runs else self._of_model(reader, models[0])

    def _of_run(self, reader: TroveReader, run_id: str) -> CaseSide:
        side = _read_side(reader, ("run", run_id), replace(self._query, run_id=run_id))
        (row,) = reader.runs(run_id)
        if not side.cases and row.run.kind in EXECUTED:
            short = run_id[:SHORT_ID]
            raise NotFound(
                f"run {short} ({row.run.source}) executed recorded cases, and recorded none "
                f"itself; compare its results with: optrove results {short} --compare RUN"
            )
        return side

    def _of_model(self, reader: TroveReader, model: str) -> CaseSide:
        return _read_side(reader, ("model", model), replace(self._query, model=model))

    def _of_file(self, path: Path) -> CaseSide:
        # A comparison of runs does not need the modules that read files.
        from optrove.interop.formats import read_file
        from optrove.serializer.described import describe_case

        imported, fidelity = read_file(path)
        if fidelity.partly or fidelity.refused:
            self._warn(fidelity)
        rows: dict[str, CaseRow] = {}
        for one in (case for each in imported for case in each.cases):
            if self._query.data_movement or is_listed(one.case.op):
                found = describe_case(one.case)
                before = rows.get(found.case_id)
                rows[found.case_id] = CaseRow(
                    case_id=found.case_id,
                    semantic_id=found.semantic_id,
                    family_id=found.family_id,
                    op=found.op,
                    replayable=found.replayable,
                    calls=one.count + (0 if before is None else before.calls),
                    content=found.content,
                )

        def content(case_id: str) -> str | None:
            return rows[case_id].content if case_id in rows else None

        return CaseSide(str(path), "file", counted(rows.values()), content)


def _read_side(reader: TroveReader, named: tuple[str, str], query: Query) -> CaseSide:
    def content(case_id: str) -> str | None:
        wanted = Query(case_id=case_id, outermost_only=False, data_movement=True)
        return next((row.content for row in reader.cases(wanted)), None)

    kind, name = named
    return CaseSide(name, kind, counted(reader.cases(query)), content)
