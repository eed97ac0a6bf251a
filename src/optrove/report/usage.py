"""Count the calls of ops or cases by model and test, or by one property."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from optrove.model.trove import board_text
from optrove.report.document import Column, Paragraph, paragraphs, table
from optrove.report.listings import source_text
from optrove.report.wording import plural
from optrove.trove.query import model_label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from optrove.model.trove import ConfigCalls, ExecutionRow, TensorFacts
    from optrove.report.document import Node
    from optrove.serializer.text import Json
    from optrove.trove.query import Configuration

TENSOR_PROPERTIES: Final = ("dtype", "layout", "memory", "mesh", "shape")
"""The properties of tensors that cases can be grouped by."""

_BY_EXECUTION: Final[Mapping[str, Callable[[ExecutionRow], str]]] = {
    "model": model_label,
    "source": lambda execution: execution.source,
    "test": lambda execution: execution.test_id or "",
    "board": lambda execution: board_text(execution.board, execution.machine),
}

_Key = TypeVar("_Key")
_UseKey: TypeAlias = tuple[str, str | None, str, str | None, str]
_Place: TypeAlias = tuple[str, str, str]

_NONE: Final = "(none)"
_USES: Final = (
    Column("calls", right=True),
    Column("cases", right=True),
    Column("board"),
    Column("model, and its tests", flexible=True),
)


@dataclass(frozen=True, slots=True)
class Usage:
    """The callers of some cases: each entry is a key, calls and cases, most calls first.

    ``places`` are a model, one of its tests (or else its source), and a board; ``uses`` are an op,
    a model, its source, a test and a board.
    """

    ops: tuple[tuple[str, int, int], ...]
    models: tuple[tuple[str, int, int], ...]
    places: tuple[tuple[_Place, int, int], ...]
    uses: tuple[tuple[_UseKey, int, int], ...]


@dataclass(frozen=True, slots=True)
class UsageGroup:
    """The cases that agree in one property; ``models`` are names."""

    value: str
    calls: int
    cases: int
    models: tuple[str, ...]


def usage_of(configurations: Iterable[Configuration]) -> Usage:
    """Return the callers of these cases."""
    ops, models = _CallCounts[str](), _CallCounts[str]()
    places, uses = _CallCounts[_Place](), _CallCounts[_UseKey]()
    for configuration in configurations:
        op = configuration.row.op
        by_place: Counter[_Place] = Counter()
        by_use: Counter[_UseKey] = Counter()
        for each in configuration.executions:
            board = board_text(each.board, each.machine)
            by_place[model_label(each), each.test_id or source_text(each.source), board] += (
                each.count
            )
            by_use[op, each.model, each.source, each.test_id, board] += each.count
        ops.add({op: configuration.row.calls})
        by_model: Counter[str] = Counter()
        for (label, _, _), count in by_place.items():
            by_model[label] += count
        models.add(by_model)
        places.add(by_place)
        uses.add(by_use)
    return Usage(ops.rows(), models.rows(), places.rows(), uses.rows())


def groups(
    configurations: Iterable[tuple[Configuration, Sequence[TensorFacts]]],
    by: str,
    argument: str | None = None,
) -> tuple[UsageGroup, ...]:
    """Return the cases grouped by a property of tensors or callers, most calls first.

    A property of tensors is that of all tensors of a case, or of those in one argument, so that
    each case is in one group. A case is in the group of every model, test or board that calls it.
    """
    return _grouped(_values(case, facts, by, argument) for case, facts in configurations)


def config_groups(
    configurations: Iterable[tuple[Configuration, Sequence[ConfigCalls]]],
) -> tuple[UsageGroup, ...]:
    """Return the cases grouped by the entry of a run configuration that they were called with."""
    return _grouped(_config_values(case, rows) for case, rows in configurations)


def _grouped(cases: Iterable[dict[str, tuple[int, set[str]]]]) -> tuple[UsageGroup, ...]:
    """Return the groups of cases, each given as its calls and models by the group's value."""
    counts = _CallCounts[str]()
    models: dict[str, set[str]] = {}
    for found in cases:
        counts.add({value: calls for value, (calls, _) in found.items()})
        for value, (_, names) in found.items():
            models.setdefault(value, set()).update(names)
    return tuple(
        UsageGroup(value, calls, cases, tuple(sorted(models[value])))
        for value, calls, cases in counts.rows()
    )


def usage_document(usage: Usage) -> Iterator[Node]:
    """Yield the totals of each op, and a table of the models with their tests below them."""
    yield from paragraphs(
        f"{op}: {plural(cases, 'case')}, {plural(calls, 'call')}" for op, calls, cases in usage.ops
    )
    by_model: dict[str, list[tuple[_Place, int, int]]] = {}
    for entry in usage.places:
        by_model.setdefault(entry[0][0], []).append(entry)
    yield table(
        _USES, [row for model in usage.models for row in _model_rows(model, by_model[model[0]])]
    )
    yield Paragraph(plural(len(by_model), "model"))


def groups_document(found: Sequence[UsageGroup], by: str) -> Iterator[Node]:
    """Yield a table of groups."""
    counts = (Column(name, right=True) for name in ("calls", "cases", "models"))
    yield table(
        (*counts, Column(by, flexible=True, whole=True)),
        [(each.calls, each.cases, len(each.models), each.value) for each in found],
    )


def usage_data(usage: Usage) -> list[Json]:
    """Return the callers; ``docs/command-line.md`` describes the keys."""
    return [
        {
            "op": op,
            "model": model,
            "source": source,
            "test": test_id,
            "board": board or None,
            "calls": calls,
            "cases": cases,
        }
        for (op, model, source, test_id, board), calls, cases in usage.uses
    ]


def groups_data(found: Sequence[UsageGroup], by: str) -> list[Json]:
    """Return the groups; ``docs/command-line.md`` describes the keys."""
    return [
        {by: each.value, "calls": each.calls, "cases": each.cases, "models": list(each.models)}
        for each in found
    ]


def _model_rows(
    model: tuple[str, int, int], own: Sequence[tuple[_Place, int, int]]
) -> list[tuple[int, int, str, str]]:
    label, calls, cases = model
    boards = " ".join(sorted({board for (_, _, board), _, _ in own} - {""}))
    rows = [(calls, cases, boards, label)]
    if [place for (_, place, _), _, _ in own] == [label]:
        return rows
    for (_, place, board), some, of_cases in own:
        rows.append((some, of_cases, board, f"  {place}"))
    return rows


def _values(
    configuration: Configuration, facts: Sequence[TensorFacts], by: str, argument: str | None
) -> dict[str, tuple[int, set[str]]]:
    """Return the groups that a case is in, with its calls and the models that make them."""
    if by in TENSOR_PROPERTIES:
        names = {model_label(each) for each in configuration.executions}
        return {_tensor_value(facts, by, argument): (configuration.row.calls, names)}
    found: dict[str, tuple[int, set[str]]] = {}
    for execution in configuration.executions:
        value = _BY_EXECUTION[by](execution) or _NONE
        count, names = found.get(value, (0, set()))
        found[value] = (count + execution.count, names | {model_label(execution)})
    return found


def _config_values(
    configuration: Configuration, rows: Sequence[ConfigCalls]
) -> dict[str, tuple[int, set[str]]]:
    """Return the calls and models of a case by the entry that its arguments came from."""
    labels: dict[str, set[str]] = {}
    for each in configuration.executions:
        labels.setdefault(each.run_id, set()).add(model_label(each))
    found: dict[str, tuple[int, set[str]]] = {}
    for row in rows:
        if row.run_id in labels:
            calls, names = found.get(row.path, (0, set()))
            found[row.path] = (calls + row.calls, names | labels[row.run_id])
    rest = configuration.row.calls - sum(calls for calls, _ in found.values())
    if rest > 0:
        found[_NONE] = (rest, {name for names in labels.values() for name in names})
    return found


def _tensor_value(facts: Sequence[TensorFacts], by: str, argument: str | None) -> str:
    by_argument: dict[str, list[str]] = {}
    for fact in facts:
        if argument is None or fact.argument == argument:
            by_argument.setdefault(fact.argument, []).append(getattr(fact, by) or _NONE)
    if by == "mesh":
        return ", ".join(sorted({each for own in by_argument.values() for each in own})) or _NONE
    if argument is not None:
        return _joined(by_argument.get(argument, []))
    return ", ".join(f"{name}={_joined(own)}" for name, own in by_argument.items()) or _NONE


def _joined(values: Sequence[str]) -> str:
    """Return the values of an argument's tensors; equal ones are counted."""
    counts = Counter(values)
    parts = [f"{value} ({count} times)" if count > 1 else value for value, count in counts.items()]
    return " + ".join(parts) or _NONE


class _CallCounts(Generic[_Key]):
    """Counts of calls and cases by key."""

    __slots__ = ("_calls", "_cases")

    def __init__(self) -> None:
        self._calls: Counter[_Key] = Counter()
        self._cases: Counter[_Key] = Counter()

    def add(self, calls: Mapping[_Key, int]) -> None:
        """Count a case, and its calls by key."""
        self._calls.update(calls)
        self._cases.update(calls.keys())

    def rows(self) -> tuple[tuple[_Key, int, int], ...]:
        """Return key, calls and cases, most calls first."""
        order = sorted(self._calls, key=lambda key: (-self._calls[key], _sortable(key)))
        return tuple((key, self._calls[key], self._cases[key]) for key in order)


def _sortable(key: object) -> tuple[str, ...]:
    """Return a key by which equal counts are ordered: names, where an absent one comes first."""
    return tuple(part or "" for part in key) if isinstance(key, tuple) else (str(key),)
