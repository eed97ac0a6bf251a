"""The configurations of an op and their families, as documents and as data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from optrove.model.case import obstacles
from optrove.model.causes import error_line
from optrove.model.differences import differences, is_same_json, json_parts, path_step
from optrove.model.records import CallOutcome
from optrove.model.values import key_step
from optrove.report.describe import argument_fields, argument_texts, value_text
from optrove.report.document import Field, Fields, Paragraph, Section, paragraphs
from optrove.report.listings import left_out_texts, machine_data
from optrove.report.shards import write_pictures
from optrove.report.wording import SHORT_ID, plural
from optrove.serializer.described import case_of
from optrove.serializer.text import read, write
from optrove.serializer.wire import decode
from optrove.trove import query
from optrove.trove.query import calls_of, model_label, ranked_models, recorded_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from optrove.model.differences import Parts
    from optrove.model.trove import CaseFamily, CaseRow, ExecutionRow
    from optrove.report.document import Node
    from optrove.serializer.text import Json
    from optrove.trove.query import Configuration, OpCases
    from optrove.trove.reader import TroveReader

_MAX_MODELS: Final = 6
_MAX_VARIED: Final = 4
"""How many numbers of a family are shown: a list of scalars may have one for each parameter."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The part of an answer that is shown: configuration ``number``, or the first ``limit``."""

    number: int | None = None
    limit: int | None = None


def cases_document(
    reader: TroveReader, answers: Sequence[OpCases], shown: Shown, pictures: Path | None = None
) -> Iterator[Node]:
    """Yield the configurations of each op, and write pictures of shards into a directory."""
    for answer in answers:
        yield from heading(answer.op, cases=answer.cases, every=answer.every)
        others = reader.families(answer.op)
        for each in _shown(reader, answer, shown, by_run=True):
            files = () if pictures is None else write_pictures(each.row, pictures)
            raised = "".join(_raised(reader, each)) or None
            yield configuration_section(each, files, others.get(each.row.case_id), raised)
        if shown.number is None:
            yield from paragraphs(left_out_texts(query.left_out_of(reader, (answer,))))


def cases_data(reader: TroveReader, answers: Sequence[OpCases], shown: Shown) -> Iterator[Json]:
    """Yield the configurations of each op; ``docs/command-line.md`` describes the keys."""
    for answer in answers:
        others = reader.families(answer.op)
        for each in _shown(reader, answer, shown, by_run=False):
            some, error = _raised(reader, each)
            raised = None if some else error or None
            yield configuration_data(each, others.get(each.row.case_id), raised)


def _shown(
    reader: TroveReader, answer: OpCases, shown: Shown, *, by_run: bool
) -> Iterable[Configuration]:
    if shown.number is not None:
        return (query.configuration(reader, answer, shown.number),)
    return islice(query.configurations(reader, answer.query, by_run=by_run), shown.limit)


def _raised(reader: TroveReader, configuration: Configuration) -> tuple[str, str]:
    """Return how many calls of a case raised if others did not, and the error; empty if none."""
    calls: Counter[CallOutcome | None] = Counter()
    for each in configuration.executions:
        calls[each.outcome] += each.count
    if not calls[CallOutcome.RAISED]:
        return "", ""
    executions = tuple(reader.executions([configuration.row.case_id]))
    error = next((each.error for each in executions if each.error is not None), "")
    never = recorded_error(executions) is not None and not calls[CallOutcome.RETURNED]
    some = "" if never else f"{calls[CallOutcome.RAISED]:,} of {calls.total():,} calls, "
    return some, error


def heading(op: str, *, cases: int, every: int) -> tuple[Paragraph, ...]:
    """Return the paragraphs above the configurations of an op, ``cases`` out of ``every``."""
    of_all = "" if cases == every else f" of {every:,}"
    return paragraphs((f"Operation: {op}", f"Configurations: {cases:,}{of_all}"))


def configuration_section(
    configuration: Configuration,
    pictures: Iterable[Path] = (),
    others: CaseFamily | None = None,
    raised: str | None = None,
) -> Section:
    """Return one configuration; ``pictures`` are files that were written of it.

    ``others`` are cases whose calls count as those of this one, ``raised`` is the recorded error.
    """
    row = configuration.row
    case = case_of(row.content)
    missing = [
        f"not recorded completely: {each.type} at {each.path}, {each.reason}"
        for each in obstacles(case)
    ]
    if missing:
        missing.append("a replay supplies these parts if it can")
    return Section(
        f"Configuration {configuration.number:,}: case {row.case_id[:SHORT_ID]}, "
        f"{plural(row.calls, 'call')}",
        (
            *used_by(ranked_models(calls_of(configuration.executions))),
            *raised_text(raised),
            *paragraphs(missing),
            argument_fields(case),
            *others_text(others),
            Fields(tuple(Field("picture", str(path)) for path in pictures)),
        ),
    )


def raised_text(raised: str | None) -> Iterator[Node]:
    """Yield the reason of the recorded error of a case."""
    if raised is not None:
        yield Fields((Field("raised when recorded", error_line(raised)),))


def others_text(others: CaseFamily | None) -> Iterator[Node]:
    """Yield how many calls of a case have other numbers than it, and the range of these."""
    if others is not None:
        cases = f"{plural(others.cases, 'case')} that differ in numbers only"
        yield Paragraph(f"{plural(others.calls, 'call')} of {cases} count as calls of this one:")
        yield Fields(
            tuple(
                Field(
                    each.path,
                    f"{plural(each.values, 'value')} "
                    f"{value_text(decode(each.lowest))}..{value_text(decode(each.highest))}",
                    code=True,
                )
                for each in others.varied[:_MAX_VARIED]
            )
        )
        more = len(others.varied) - _MAX_VARIED
        if more > 0:
            yield Paragraph(f"and {plural(more, 'number')} more (--json lists all)")


def _others_data(others: CaseFamily | None) -> Json:
    if others is None:
        return None
    varies = {
        each.path: {"values": each.values, "lowest": each.lowest, "highest": each.highest}
        for each in others.varied
    }
    return {"cases": others.cases, "calls": others.calls, "varies": varies}


def configuration_data(
    configuration: Configuration, others: CaseFamily | None = None, raised: str | None = None
) -> Json:
    """Return one configuration; ``docs/command-line.md`` describes the keys."""
    row = configuration.row
    return {
        "op": row.op,
        "number": configuration.number,
        "case_id": row.case_id,
        "semantic_id": row.semantic_id,
        "family_id": row.family_id,
        "replayable": row.replayable,
        "calls": row.calls,
        "recorded_error": raised,
        "models": sorted({model_label(each) for each in configuration.executions}),
        "arguments": read(row.content)["arguments"],
        "others": _others_data(others),
        "executions": [_execution_data(each) for each in configuration.executions],
    }


def used_by(models: tuple[tuple[str, tuple[str, ...]], ...]) -> tuple[Fields, ...]:
    """Return the models that use something, with boards; if there are many, the first ones."""
    if not models:
        return ()
    shown = [f"{label} ({', '.join(boards)})" if boards else label for label, boards in models]
    rest = len(shown) - _MAX_MODELS
    more = [f"{rest:,} more (optrove who lists all)"] if rest > 0 else []
    names = ", ".join([*shown[:_MAX_MODELS], *more])
    return (Fields((Field("used by", names, code=True),)),)


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
"""The most values that are listed; of more, the range or some are."""

_TUPLE: Final = frozenset({"$tuple"})


@dataclass(frozen=True, slots=True)
class Varied:
    """A place in the arguments that varies, with its distinct values in JSON."""

    path: str
    values: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """Cases that differ in scalar arguments only; ``example`` is the most called one."""

    number: int
    example: CaseRow
    cases: int
    calls: int
    models: tuple[tuple[str, tuple[str, ...]], ...]
    varied: tuple[Varied, ...]
    others: tuple[CaseFamily, ...] = ()


def families(
    configurations: Iterable[Configuration], others: Mapping[str, CaseFamily] = MappingProxyType({})
) -> tuple[Family, ...]:
    """Return the families of cases, most calls first.

    Each case is kept only as the values in which it differs from the first of its family. By their
    ids, ``others`` are cases that count as cases of the trove.
    """
    gathered: dict[tuple[str, str], _Gathered] = {}
    for configuration in configurations:
        row = configuration.row
        known = gathered.get((row.op, row.family_id))
        if known is None:
            known = gathered[row.op, row.family_id] = _Gathered(configuration)
        else:
            known.add(configuration)
        if row.case_id in others:
            known.others.append(others[row.case_id])
    order = sorted(gathered.values(), key=lambda each: (-each.calls, each.example.case_id))
    return tuple(each.family(number) for number, each in enumerate(order, start=1))


def families_document(
    reader: TroveReader, answers: Sequence[OpCases], limit: int | None
) -> Iterator[Node]:
    """Yield the families of each op."""
    for answer, found in _families_of(reader, answers):
        yield from heading(answer.op, cases=answer.cases, every=answer.every)
        yield Paragraph(f"Families: {len(found):,}")
        yield from map(family_section, found[:limit])


def families_data(
    reader: TroveReader, answers: Sequence[OpCases], limit: int | None
) -> Iterator[Json]:
    """Yield the families of each op; ``docs/command-line.md`` describes the keys."""
    for _, found in _families_of(reader, answers):
        yield from map(family_data, found[:limit])


def _families_of(
    reader: TroveReader, answers: Sequence[OpCases]
) -> Iterator[tuple[OpCases, tuple[Family, ...]]]:
    for each in answers:
        found = query.configurations(reader, each.query, by_run=True)
        yield each, families(found, reader.families(each.op))


def family_section(family: Family) -> Section:
    """Return one family: its example, with the values that vary in their places."""
    counts = f"{plural(family.cases, 'configuration')}, {plural(family.calls, 'call')}"
    such_as = f"such as case {family.example.case_id[:SHORT_ID]}"
    whole = {each.path: each for each in family.varied}
    arguments = []
    for name, written in argument_texts(case_of(family.example.content)):
        step = key_step(name).removeprefix(".")
        inner = [each for each in family.varied if each.path.startswith((f"{step}[", f"{step}."))]
        text = varied_text(whole[step]) if step in whole else written
        below = Fields(tuple(Field(each.path, varied_text(each), code=True) for each in inner))
        parts = () if step in whole or not inner else (below,)
        arguments.append(Field(name, text, code=True, parts=parts))
    title = f"Family {family.number:,}: {counts}, {such_as}"
    others = (part for each in family.others for part in others_text(each))
    return Section(title, (*used_by(family.models), Fields(tuple(arguments)), *others))


def family_data(family: Family) -> Json:
    """Return one family; ``docs/command-line.md`` describes the keys."""
    example = family.example
    return {
        "op": example.op,
        "family_id": example.family_id,
        "cases": family.cases,
        "calls": family.calls,
        "models": sorted(label for label, _ in family.models),
        "varies": {each.path: list(each.values) for each in family.varied},
        "others": [_others_data(each) for each in family.others],
        "example": {
            "case_id": example.case_id,
            "semantic_id": example.semantic_id,
            "arguments": read(example.content)["arguments"],
        },
    }


def varied_text(varied: Varied) -> str:
    """Return the number of values and some of them: ``128 values 0..127``."""
    count = plural(len(varied.values), "value")
    numbers = [each for each in varied.values if type(each) in (int, float)]
    if len(numbers) == len(varied.values) and len(numbers) > _LISTED:
        return f"{count} {min(numbers)}..{max(numbers)}"
    listed = ", ".join(value_text(decode(each)) for each in varied.values[:_LISTED])
    such = "such as " if len(varied.values) > _LISTED else ""
    return f"{count}{',' if len(numbers) < len(varied.values) else ''} {such}{listed}"


class _Gathered:
    """A family while its cases are read."""

    __slots__ = ("_by_model", "_first", "_values", "calls", "cases", "example", "others")

    def __init__(self, first: Configuration) -> None:
        self.example = first.row
        self.cases = 0
        self.calls = 0
        self.others: list[CaseFamily] = []
        self._first = read(first.row.content)["arguments"]
        self._values: dict[str, dict[str, Json]] = {}
        self._by_model: Counter[tuple[str, str]] = Counter()
        self._count(first)

    def add(self, configuration: Configuration) -> None:
        """Add a case to the family."""
        self._count(configuration)
        arguments = read(configuration.row.content)["arguments"]
        for path, first, other in differing(self._first, arguments):
            values = self._values.setdefault(path, {write(first): first})
            values[write(other)] = other

    def family(self, number: int) -> Family:
        """Return the family of all added cases."""
        varied = tuple(
            Varied(path, tuple(sorted(values.values(), key=_order)))
            for path, values in sorted(self._values.items())
        )
        models = ranked_models(self._by_model)
        others = tuple(self.others)
        return Family(number, self.example, self.cases, self.calls, models, varied, others)

    def _count(self, configuration: Configuration) -> None:
        self.cases += 1
        self.calls += configuration.row.calls
        self._by_model.update(calls_of(configuration.executions))


def differing(first: Json, other: Json) -> Iterator[tuple[str, Json, Json]]:
    """Yield the paths at which two values in JSON form differ, with both values."""
    for path, one, another in differences(first, other, _parts, step=_step, is_equal=is_same_json):
        yield path.removeprefix("."), one, another


def _parts(value: Json) -> Parts | None:
    """Return the parts of a list, a mapping or a tuple; others are compared as a whole."""
    if isinstance(value, list):
        return json_parts(value)
    is_whole = not isinstance(value, dict) or (
        value.keys() != _TUPLE and any(key.startswith("$") for key in value)
    )
    return None if is_whole else (frozenset(value), value)


def _step(key: str | int) -> str:
    return "" if key in _TUPLE else path_step(key)


def _order(value: Json) -> tuple[bool, float, str]:
    """Sort numbers by size, and everything else by its text after them."""
    if type(value) in (int, float):
        return False, value, ""
    return True, 0, write(value)
