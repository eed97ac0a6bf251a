"""Compare two things that hold cases: runs, models, troves, or files of every known format.

A name stands for what lies at that path, else for a run or a model of the trove. ``run:`` or
``model:`` before it says which; both are then found by a part of their name, if it is unique.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from optrove.errors import NotFound, NoTrove
from optrove.flows.naming import ambiguous, model_named, models_meant, near
from optrove.flows.outcomes import EXECUTED
from optrove.flows.runs_named import run_named
from optrove.flows.stores import reading
from optrove.model.hidden import is_hidden
from optrove.model.records import Query
from optrove.model.trove import CaseRow
from optrove.report.diff import Difference, compare, counted
from optrove.report.diff_text import Compared
from optrove.store.place import is_sqlite_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from optrove.flows.stores import Recovered
    from optrove.model.trove import Fidelity
    from optrove.report.diff import Counted
    from optrove.store.reader import TroveReader

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
    from optrove.codec.described import describe_case
    from optrove.interop.detect import read_file

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
