"""The cases of a trove by model, board, dtype, layout, memory, mesh and last outcome.

Cases that agree in op, kinds of tensors, origins and last outcome are a group. A trove has some
hundreds of groups, which one query counts and every count of a page is made of. Lists of cases are
queries of their own. The dtype, layout, memory and mesh of a choice have to match one tensor, its
model and board one run; they match as the filters of a Query do.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from optrove.model.ops import is_listed, is_vector
from optrove.model.records import matches_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from optrove.trove.reader import TroveReader

    _Matching: TypeAlias = Mapping[str, set[str]]


@dataclass(frozen=True, slots=True)
class FacetFilters:
    """Filters of cases by their facets; None does not restrict them."""

    model: str | None = None
    board: str | None = None
    dtype: str | None = None
    layout: str | None = None
    memory: str | None = None
    mesh: str | None = None
    outcome: str | None = None


FACETS: Final = tuple(field.name for field in fields(FacetFilters))
_OF_ORIGIN: Final = FACETS[:2]
_OF_TENSOR: Final = FACETS[2:6]

_GROUPS: Final = """
SELECT op, coalesce(tensor_set_key, 0), coalesce(origin_set_key, 0),
    coalesce(last_outcome, 'none'), outermost_calls > 0, count(*),
    sum(outermost_calls), sum(CASE WHEN replayable THEN 1 ELSE 0 END)
FROM cases GROUP BY op, tensor_set_key, origin_set_key, last_outcome, outermost_calls > 0
"""
_TENSOR_SETS: Final = "SELECT key, members FROM tensor_sets"
_ORIGIN_SETS: Final = "SELECT key, members FROM origin_sets"
_ORIGINS: Final = "SELECT key, model, board FROM origins"
_CALLS: Final = """
SELECT u.op, coalesce(r.model, r.source), coalesce(e.board, 'none'), sum(u.outermost_calls)
FROM op_usage u JOIN runs r ON r.key = u.run_key JOIN environments e ON e.key = r.environment_key
WHERE u.outermost_calls > 0
GROUP BY u.op, coalesce(r.model, r.source), coalesce(e.board, 'none')
"""


class CaseGroup(NamedTuple):
    """The cases of an op that agree in their kinds of tensors, origins and last outcome."""

    op: str
    tensor_set: int
    """Key of its set of tensors, or zero."""
    origin_set: int
    """Key of its set of origins, or zero."""
    outcome: str
    """The last outcome, or none."""
    called: bool
    """Whether some call was made that no other call made."""
    cases: int
    calls: int
    replayable: int


class CaseGroups:
    """All groups of cases of a trove in one state."""

    def __init__(self, reader: TroveReader) -> None:
        """Count the cases."""
        source = reader.connection
        self.ops: dict[str, list[CaseGroup]] = {}
        for op, tensors, origins, outcome, called, *counts in source.fetch(_GROUPS):
            group = CaseGroup(op, tensors, origins, outcome, bool(called), *counts)
            self.ops.setdefault(op, []).append(group)
        named = {key: (model, board) for key, model, board in source.fetch(_ORIGINS)}
        self._origins: dict[int, list[Any]] = {
            key: [named[each] for each in json.loads(members)]
            for key, members in source.fetch(_ORIGIN_SETS)
        }
        self._tensors: dict[int, list[Any]] = {
            key: json.loads(members) for key, members in source.fetch(_TENSOR_SETS)
        }
        self._calls: dict[str, dict[tuple[str, str], int]] = {}
        for op, model, board, calls in source.fetch(_CALLS):
            self._calls.setdefault(op, {})[model, board] = calls
        origins = {*named.values(), *(origin for own in self._calls.values() for origin in own)}
        tensors = {tuple(each) for own in self._tensors.values() for each in own}
        self._values = {
            name: {facts[place] for facts in every}
            for names, every in ((_OF_ORIGIN, origins), (_OF_TENSOR, tensors))
            for place, name in enumerate(names)
        }

    def shown(self, *, all_ops: bool = False) -> Iterator[str]:
        """Yield the ops that lists show."""
        return (op for op in self.ops if all_ops or is_listed(op))

    def chosen(self, op: str, choice: FacetFilters, *, nested: bool = False) -> list[CaseGroup]:
        """Return the groups of an op that fit; without ``nested`` those that models call."""
        return list(filter(self._fits(choice, nested=nested), self.ops[op]))

    def _fits(self, choice: FacetFilters, *, nested: bool) -> Callable[[CaseGroup], bool]:
        tensors, origins = self.sets(choice)

        def fits(group: CaseGroup) -> bool:
            return (
                (nested or group.called or is_vector(group.op))
                and (tensors is None or group.tensor_set in tensors)
                and (origins is None or group.origin_set in origins)
                and choice.outcome in (None, group.outcome)
            )

        return fits

    def matching(self, choice: FacetFilters) -> dict[str, set[str]]:
        """Return for each restricted facet of tensors and origins the values that match."""
        wanted = {name: getattr(choice, name) for name in self._values}
        return {
            name: {each for each in self._values[name] if matches_filter(name, text, each)}
            for name, text in wanted.items()
            if text is not None
        }

    def sets(self, choice: FacetFilters) -> tuple[set[int] | None, set[int] | None]:
        """Return the keys of the sets of tensors, and of origins, of which one member matches.

        None stands for all sets.
        """
        matching = self.matching(choice)
        tensors = _fitting(self._tensors, _OF_TENSOR, matching)
        return tensors, _fitting(self._origins, _OF_ORIGIN, matching)

    def models(self, groups: Iterable[CaseGroup]) -> set[str]:
        """Return the models that call some cases of these groups."""
        sets = {group.origin_set for group in groups}
        return {model for each in sets for model, _ in self._origins.get(each, ())}

    def calls(self, op: str, choice: FacetFilters) -> int:
        """Return the calls of an op by the model and on the board of a choice."""
        calls, matching = self._calls.get(op, {}).items(), self.matching(choice)
        return sum(count for origin, count in calls if _agrees(origin, _OF_ORIGIN, matching))

    def called_by(self, name: str) -> dict[str, Counter[str]]:
        """Return for each model, or each board, its listed ops, their cases and calls."""
        found: dict[str, Counter[str]] = {}
        place = _OF_ORIGIN.index(name)
        for op in self.shown():
            cases: Counter[str] = Counter()
            for group in self.ops[op]:
                for value in {origin[place] for origin in self._origins.get(group.origin_set, ())}:
                    cases[value] += group.cases if group.called else 0
            calls: Counter[str] = Counter()
            for origin, count in self._calls.get(op, {}).items():
                calls[origin[place]] += count
            for value, count in cases.items():
                totals = found.setdefault(value, Counter())
                totals.update(ops=1 if count else 0, cases=count, calls=calls[value])
        return found

    def facets(
        self, ops: Iterable[str], choice: FacetFilters, *, nested: bool = False
    ) -> dict[str, Counter[str]]:
        """Return for each value of each facet the cases that it would leave, all else as chosen."""
        found: dict[str, Counter[str]] = {name: Counter() for name in FACETS}
        matching = self.matching(choice)
        values = {
            name: _values(sets, names, name, matching)
            for sets, names in ((self._tensors, _OF_TENSOR), (self._origins, _OF_ORIGIN))
            for name in names
        }
        every = [group for op in ops for group in self.ops[op]]
        for name, counts in found.items():
            for group in filter(self._fits(replace(choice, **{name: None}), nested=nested), every):
                if name == "outcome":
                    counts[group.outcome] += group.cases
                    continue
                key = group.tensor_set if name in _OF_TENSOR else group.origin_set
                for value in values[name].get(key, ()):
                    counts[value] += group.cases
        return found


def _agrees(facts: Iterable[str], names: tuple[str, ...], matching: _Matching) -> bool:
    return all(
        name not in matching or fact in matching[name]
        for name, fact in zip(names, facts, strict=True)
    )


def _fitting(
    sets: Mapping[int, list[Any]], names: tuple[str, ...], matching: _Matching
) -> set[int] | None:
    if matching.keys().isdisjoint(names):
        return None
    return {key for key, own in sets.items() if any(_agrees(each, names, matching) for each in own)}


def _values(
    sets: Mapping[int, list[Any]], names: tuple[str, ...], name: str, matching: _Matching
) -> dict[int, set[str]]:
    """Return the values of one facet in each set, with the others of its kind as chosen."""
    place = names.index(name)
    others = {each: values for each, values in matching.items() if each != name}
    return {
        key: {each[place] for each in own if _agrees(each, names, others)}
        for key, own in sets.items()
    }


class ListedCase(NamedTuple):
    """A case in a list, with the columns that it is listed by."""

    key: int
    case_id: str
    family_id: str
    replayable: bool
    calls: int
    """Those that no other call made."""
    last_outcome: str | None


class ListedFamily(NamedTuple):
    """The chosen cases of a family: their number and calls, and those that are called most."""

    cases: int
    calls: int
    members: list[ListedCase]


_MEMBERS: Final = 8
"""How many cases of a family are read."""

_LISTED: Final = "c.key, c.case_id, c.family_id, c.replayable, c.outermost_calls, c.last_outcome"
_AFTER: Final = """
(c.outermost_calls < :calls OR (c.outermost_calls = :calls AND c.case_id > :case_id))
"""
_TRIED: Final = """
EXISTS (
    SELECT 1 FROM last_attempts l WHERE l.case_key = c.key
        AND (CAST(:board AS text) IS NULL OR l.board = :board)
        AND (CAST(:device AS text) IS NULL OR l.device_kind = :device)
        AND (CAST(:outcome AS text) IS NULL OR l.outcome = :outcome))
"""
_FAMILY: Final = """
SELECT sum(outermost_calls), max(outermost_calls), min(case_id) FROM cases
WHERE op = :op AND family_id = :family_id
"""
_FAMILIES_AFTER: Final = """
(sum(c.outermost_calls) < :total OR (sum(c.outermost_calls) = :total
    AND (max(c.outermost_calls) < :calls
        OR (max(c.outermost_calls) = :calls AND min(c.case_id) > :case_id))))
"""
_ORIGIN: Final = {"model": "coalesce(r.model, r.source)", "board": "coalesce(e.board, 'none')"}
_CALLED_BY: Final = """
FROM usage u JOIN runs r ON r.key = u.run_key JOIN environments e ON e.key = r.environment_key
JOIN cases c ON c.key = u.case_key
"""


class CaseList:
    """The cases of an op that fit a choice, most called first, read page by page."""

    def __init__(
        self,
        reader: TroveReader,
        groups: CaseGroups,
        op: str,
        choice: FacetFilters,
        *,
        nested: bool,
    ) -> None:
        """Take a choice among the cases of an op."""
        self._reader = reader
        self._asked: dict[str, object] = {"op": op}
        self._conditions = ["1 = 1"]
        if not nested and not is_vector(op):
            self._conditions.append("c.outermost_calls > 0")
        for kind, keys in zip(("tensor", "origin"), groups.sets(choice), strict=True):
            if keys is not None:
                self._conditions.append(f"c.{kind}_set_key IN :{kind}_sets")
                self._asked[f"{kind}_sets"] = sorted(keys)
        if choice.outcome is not None:
            self._conditions.append("coalesce(c.last_outcome, 'none') = :outcome")
            self._asked["outcome"] = choice.outcome
        matching = groups.matching(choice)
        self._callers = {name: sorted(matching[name]) for name in _ORIGIN if name in matching}

    def page(self, after: ListedCase | None, limit: int) -> list[ListedCase]:
        """Return some cases from after one on."""
        return _listed_cases(self._reader, self._conditions, self._asked, after, limit)

    def families(self, after: ListedCase | None, limit: int) -> list[ListedFamily]:
        """Return some families, most called first, from after that of a case on."""
        chosen = " AND ".join(self._conditions)
        asked: dict[str, object] = {**self._asked, "most": limit}
        having = [f"max(CASE WHEN {chosen} THEN 1 ELSE 0 END) = 1"]
        if after is not None:
            of_case = {"op": self._asked["op"], "family_id": after.family_id}
            ((total, calls, case_id),) = self._reader.connection.fetch(_FAMILY, of_case)
            asked.update(total=total, calls=calls, case_id=case_id)
            having.append(_FAMILIES_AFTER)
        sql = f"""
SELECT c.family_id FROM cases c WHERE c.op = :op GROUP BY c.family_id
HAVING {" AND ".join(having)}
ORDER BY sum(c.outermost_calls) DESC, max(c.outermost_calls) DESC, min(c.case_id) LIMIT :most
"""  # noqa: S608 - made of constants
        ids = [family_id for (family_id,) in self._reader.connection.fetch(sql, asked)]
        sql = f"""
SELECT * FROM (
    SELECT {_LISTED}, count(*) OVER (PARTITION BY c.family_id),
        sum(c.outermost_calls) OVER (PARTITION BY c.family_id),
        row_number() OVER (
            PARTITION BY c.family_id ORDER BY c.outermost_calls DESC, c.case_id) AS place
    FROM cases c WHERE c.op = :op AND c.family_id IN :ids AND {chosen}
) m WHERE place <= :members ORDER BY place
"""  # noqa: S608 - made of constants
        found: dict[str, ListedFamily] = {}
        members = self._reader.connection.fetch(
            sql, {**self._asked, "ids": ids, "members": _MEMBERS}
        )
        for *columns, cases, calls, _ in members:
            case = ListedCase(*columns)
            family = found.setdefault(case.family_id, ListedFamily(cases, calls, []))
            family.members.append(case)
        return [found[family_id] for family_id in ids]

    def calls(self, keys: list[int]) -> dict[int, int]:
        """Return the calls of cases by the model and on the board of the choice, by key."""
        sql = f"""
SELECT c.key, sum(u.outermost_calls) {self._called_by()} AND c.key IN :keys GROUP BY c.key
"""
        return dict(self._reader.connection.fetch(sql, {**self._callers, "keys": keys}))

    def total_calls(self) -> int:
        """Return the calls of all of them by the model and on the board of the choice."""
        sql = f"""
SELECT coalesce(sum(u.outermost_calls), 0) {self._called_by()}
    AND c.op = :op AND {" AND ".join(self._conditions)}
"""
        ((calls,),) = self._reader.connection.fetch(sql, {**self._asked, **self._callers})
        return int(calls)

    def _called_by(self) -> str:
        """Return the SQL for the calls by the models and on the boards that match."""
        conditions = ["1 = 1", *(f"{_ORIGIN[name]} IN :{name}" for name in self._callers)]
        return f"{_CALLED_BY} WHERE {' AND '.join(conditions)}"


def listed_case(reader: TroveReader, case_id: str) -> tuple[str, ListedCase] | None:
    """Return the op of a case, and the case with the columns that it is listed by."""
    sql = f"SELECT c.op, {_LISTED} FROM cases c WHERE c.case_id = :case_id"  # noqa: S608 - constants
    for op, *columns in reader.connection.fetch(sql, {"case_id": case_id}):
        return op, ListedCase(*columns)
    return None


def tried_cases(
    reader: TroveReader,
    op: str,
    chosen: Mapping[str, str | None],
    after: ListedCase | None,
    limit: int,
) -> list[ListedCase]:
    """Return some cases of an op that were tried, most called first, from after one on.

    ``chosen`` are board, kind of device and outcome of one of their last attempts; None is any.
    """
    return _listed_cases(reader, [_TRIED], {**chosen, "op": op}, after, limit)


def _listed_cases(
    reader: TroveReader,
    conditions: Iterable[str],
    asked: Mapping[str, object],
    after: ListedCase | None,
    limit: int,
) -> list[ListedCase]:
    """Return the cases of an op that meet conditions, most called first, from after one on."""
    every = [*conditions, *(() if after is None else (_AFTER,))]
    position = {} if after is None else {"calls": after.calls, "case_id": after.case_id}
    sql = f"""
SELECT {_LISTED} FROM cases c WHERE c.op = :op AND {" AND ".join(every)}
ORDER BY c.outermost_calls DESC, c.case_id LIMIT :most
"""  # noqa: S608 - made of constants
    rows = reader.connection.fetch(sql, {**asked, **position, "most": limit})
    return list(map(ListedCase._make, rows))
