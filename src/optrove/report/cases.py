"""The configurations of an op and their families, as text and data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.model.case import obstacles
from optrove.model.values import key_step
from optrove.report.describe import drawn, drawn_arguments, folded, in_reading_order
from optrove.report.runs import SHORT_ID, machine_data
from optrove.report.tables import plural
from optrove.serializer.described import case_of
from optrove.serializer.text import read, write
from optrove.serializer.wire import decode
from optrove.trove.query import calls_of, model_label, ranked_models

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from optrove.model.case import Case
    from optrove.model.trove import CaseRow, ExecutionRow
    from optrove.serializer.text import Json
    from optrove.trove.query import Configuration


WIDTH: Final = 80
_INDENT: Final = "  "
_MOST_MODELS: Final = 6


def heading_lines(op: str, *, cases: int, every: int) -> list[str]:
    """Return the lines above the configurations of an op, ``cases`` out of ``every``."""
    of_all = "" if cases == every else f" of {every:,}"
    return [f"Operation: {op}", f"Configurations: {cases:,}{of_all}"]


def configuration_lines(configuration: Configuration) -> list[str]:
    """Return one configuration as a block of lines, after an empty one."""
    row = configuration.row
    case = case_of(row.content)
    name = f"Configuration {configuration.number:,}"
    return [
        "",
        f"{name}: case {row.case_id[:SHORT_ID]}, {plural(row.calls, 'call')}",
        *used_by_lines(ranked_models(calls_of(configuration.executions))),
        *(_INDENT + line for line in _missing_lines(case)),
        *(_INDENT + line for line in drawn_arguments(case, WIDTH - len(_INDENT))),
    ]


def _missing_lines(case: Case) -> list[str]:
    found = [
        f"not recorded completely: {each.type} at {each.path}, {each.reason}"
        for each in obstacles(case)
    ]
    return [*found, "a replay supplies such parts where it can, and notes it"] if found else []


def configuration_data(configuration: Configuration) -> Json:
    """Return one configuration for machines; see ``optrove.cli.ask`` for the keys."""
    row = configuration.row
    return {
        "op": row.op,
        "number": configuration.number,
        "case_id": row.case_id,
        "semantic_id": row.semantic_id,
        "family_id": row.family_id,
        "replayable": row.replayable,
        "calls": row.calls,
        "models": sorted({model_label(each) for each in configuration.executions}),
        "arguments": read(row.content)["arguments"],
        "executions": [_execution_data(each) for each in configuration.executions],
    }


def used_by_lines(models: tuple[tuple[str, tuple[str, ...]], ...]) -> list[str]:
    """Return who uses something, with boards; what is too much is counted."""
    if not models:
        return []
    shown = [f"{label} ({', '.join(boards)})" if boards else label for label, boards in models]
    rest = len(shown) - _MOST_MODELS
    more = [f"{rest:,} more (optrove who tells all)"] if rest > 0 else []
    return folded(f"{_INDENT}used by ", ", ".join([*shown[:_MOST_MODELS], *more]), WIDTH)


def _execution_data(execution: ExecutionRow) -> Json:
    phase, outputs = execution.phase, execution.outputs
    return {
        "run_id": execution.run_id,
        "source": execution.source,
        "model": execution.model,
        "board": execution.board,
        "machine_info": machine_data(execution.machine),
        "test": execution.test_id,
        "phase": None if phase is None else phase.value,
        "module": execution.module,
        "mode": execution.mode,
        "outermost": execution.outermost,
        "outcome": execution.outcome.value,
        "count": execution.count,
        "total_ns": execution.total_ns,
        "outputs": None if outputs is None else read(outputs),
        "error": execution.error,
    }


_LISTED: Final = 4
"""How many values are written out; of more, only the range or some are."""

_TUPLE: Final = frozenset({"$tuple"})


@dataclass(frozen=True, slots=True)
class Varied:
    """A place in the arguments that differs, with its values in JSON, each once."""

    path: str
    values: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """Cases that differ in scalar arguments only; ``example`` is the one called most."""

    number: int
    example: CaseRow
    cases: int
    calls: int
    models: tuple[tuple[str, tuple[str, ...]], ...]
    varied: tuple[Varied, ...]


def families(configurations: Iterable[Configuration]) -> tuple[Family, ...]:
    """Return the families of cases, most calls first.

    Of each case, no more is kept than the values in which it differs from the first of its family.
    """
    gathered: dict[tuple[str, str], _Gathered] = {}
    for configuration in configurations:
        row = configuration.row
        known = gathered.get((row.op, row.family_id))
        if known is None:
            gathered[row.op, row.family_id] = _Gathered(configuration)
        else:
            known.add(configuration)
    order = sorted(gathered.values(), key=lambda each: (-each.calls, each.example.case_id))
    return tuple(each.family(number) for number, each in enumerate(order, start=1))


def family_lines(family: Family) -> list[str]:
    """Return one family as a block of lines, after an empty one."""
    counts = f"{plural(family.cases, 'configuration')}, {plural(family.calls, 'call')}"
    such_as = f"such as case {family.example.case_id[:SHORT_ID]}"
    lines = ["", f"Family {family.number:,}: {counts}, {such_as}", *used_by_lines(family.models)]
    whole = {each.path: each for each in family.varied}
    for name, value in in_reading_order(case_of(family.example.content)):
        step = _argument_step(name)
        own = whole.get(step)
        if own is not None:
            lines += folded(f"  {name}: ", varied_text(own), WIDTH)
            continue
        lines += folded(f"  {name}: ", drawn(value), WIDTH)
        inner = (each for each in family.varied if each.path.startswith((f"{step}[", f"{step}.")))
        for each in inner:
            lines += folded(f"      {each.path}: ", varied_text(each), WIDTH)
    return lines


def family_data(family: Family) -> Json:
    """Return one family for machines; see ``optrove.cli.ask`` for the keys."""
    example = family.example
    return {
        "op": example.op,
        "family_id": example.family_id,
        "cases": family.cases,
        "calls": family.calls,
        "models": sorted(label for label, _ in family.models),
        "varies": {each.path: list(each.values) for each in family.varied},
        "example": {
            "case_id": example.case_id,
            "semantic_id": example.semantic_id,
            "arguments": read(example.content)["arguments"],
        },
    }


def varied_text(varied: Varied) -> str:
    """Return how many values a place takes and which: ``128 values 0..127``."""
    count = plural(len(varied.values), "value")
    numbers = [each for each in varied.values if type(each) in (int, float)]
    if len(numbers) == len(varied.values) and len(numbers) > _LISTED:
        return f"{count} {min(numbers)}..{max(numbers)}"
    listed = ", ".join(drawn(decode(each)) for each in varied.values[:_LISTED])
    return f"{count}{',' if len(numbers) < len(varied.values) else ''} {_such(varied)}{listed}"


def _such(varied: Varied) -> str:
    return "such as " if len(varied.values) > _LISTED else ""


class _Gathered:
    """What is known of a family so far."""

    __slots__ = ("_by_model", "_first", "_values", "calls", "cases", "example")

    def __init__(self, first: Configuration) -> None:
        self.example = first.row
        self.cases = 0
        self.calls = 0
        self._first = read(first.row.content)["arguments"]
        self._values: dict[str, dict[str, Json]] = {}
        self._by_model: Counter[tuple[str, str]] = Counter()
        self._count(first)

    def add(self, configuration: Configuration) -> None:
        """Take in one more case of the family."""
        self._count(configuration)
        arguments = read(configuration.row.content)["arguments"]
        for path, first, other in differing(self._first, arguments):
            values = self._values.setdefault(path, {write(first): first})
            values[write(other)] = other

    def family(self, number: int) -> Family:
        """Return what is known as a whole."""
        varied = tuple(
            Varied(path, tuple(sorted(values.values(), key=_order)))
            for path, values in sorted(self._values.items())
        )
        models = ranked_models(self._by_model)
        return Family(number, self.example, self.cases, self.calls, models, varied)

    def _count(self, configuration: Configuration) -> None:
        self.cases += 1
        self.calls += configuration.row.calls
        self._by_model.update(calls_of(configuration.executions))


def differing(first: Json, other: Json, path: str = "") -> Iterator[tuple[str, Json, Json]]:
    """Yield the paths at which two values in JSON form differ, with what is there in each."""
    match first, other:
        case dict(), dict() if first.keys() == other.keys() and _has_parts(first):
            for key in first:
                step = "" if key in _TUPLE else key_step(key)
                yield from differing(first[key], other[key], (path + step).removeprefix("."))
        case list(), list() if len(first) == len(other):
            for place, (one, another) in enumerate(zip(first, other, strict=True)):
                yield from differing(one, another, f"{path}[{place}]")
        # As quick as it gets, and as strict: 1, 1.0 and true are three.
        case _ if repr(first) != repr(other):
            yield path, first, other


def _has_parts(value: dict[str, Json]) -> bool:
    """Tell whether an object is a mapping or a tuple; any other is compared as a whole."""
    return value.keys() == _TUPLE or not any(key.startswith("$") for key in value)


def _argument_step(name: str) -> str:
    return key_step(name).removeprefix(".")


def _order(value: Json) -> tuple[bool, float, str]:
    """Sort numbers by size, and everything else by its text after them."""
    if type(value) in (int, float):
        return False, value, ""
    return True, 0, write(value)
