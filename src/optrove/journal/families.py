"""Families: cases of a torch program that differ in numbers only, such as those of an optimizer.

The step size of an optimizer, the index of a sample and where the sample begins in its storage
have another value in each call, without bound. Of the cases that agree in everything except numbers
among their arguments and the offsets of tensors, and whose outputs agree as well, the first
MAX_CASES are kept. Calls of the others count as calls of the first; each keeps its own numbers, and
the family says how many values each number had and their range. A number that changes the shape of
an output is not of this kind: its cases are all kept.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from optrove.model.case import Case, rewrite
from optrove.model.trove import VariedNumber
from optrove.model.values import (
    Float,
    FrozenSet,
    Handle,
    Int,
    Mapping,
    Set,
    Symbol,
    TensorSpec,
    TorchPlacement,
    Value,
    walk,
)
from optrove.serializer.described import case_of
from optrove.serializer.hashes import placement_hash
from optrove.serializer.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from optrove.model.records import Call
    from optrove.model.trove import DescribedCase

MAX_CASES: Final = 8
"""How many cases of a family are kept."""

_TORCH: Final = "torch."
_DIGITS: Final = re.compile(r"[-+.\de]+")
_UNORDERED: Final = (Set, FrozenSet, Mapping, Handle)
"""Values whose numbers have no place of their own."""


@dataclass(frozen=True, slots=True)
class Family:
    """The cases that count as the case ``first``: the numbers in the arguments of each."""

    first: int
    others: dict[int, tuple[Value, ...]]
    varied: tuple[VariedNumber, ...]


def numbers_in(case: Case) -> Iterator[tuple[str, Value]]:
    """Yield the numbers in the arguments of a case, each with its path."""
    for name, value in case.arguments:
        for path, part in walk(value, name):
            match part:
                case Int() | Float():
                    yield path, part
                case TensorSpec(placement=TorchPlacement(offset=offset)):
                    yield f"{path}.offset", Int(offset)


def with_numbers(case: Case, numbers: Iterable[Value]) -> Case:
    """Return the case with other numbers in its arguments, in the order of ``numbers_in``."""
    given = iter(numbers)
    return case.changed(lambda part: _with_number(part, lambda: next(given)))


def _with_number(part: Value, number: Callable[[], Value]) -> Value:
    """Return a part of an argument with another number, if it has one."""
    match part:
        case Int() | Float():
            return number()
        case TensorSpec(placement=TorchPlacement() as placement):
            found = number()
            offset = found.value if isinstance(found, Int) else 0
            return replace(part, placement=replace(placement, offset=offset))
    return part


def exact_call(call: Call, case: Case) -> tuple[Call, Case]:
    """Return a call and its case as it was made, if it counts as a call of ``case``."""
    if not call.numbers:
        return call, case
    exact = with_numbers(case, call.numbers)
    return replace(call, case_id=placement_hash(exact), numbers=()), exact


def find_families(
    case_ids: dict[int, str],
    case: Callable[[int], DescribedCase],
    outputs: Callable[[int], Iterable[tuple[Value, ...]]],
) -> Iterator[Family]:
    """Yield the families among cases that have too many members.

    Cases are known by their numbers in the journal; ``outputs`` returns all outputs of a case.
    """
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for number in case_ids:
        described = case(number)
        if described.op.startswith(_TORCH):
            # Cheaper than to read each case, and equal for all members of a family.
            text = _DIGITS.sub("", described.content)
            groups[hash((described.tensors, text))].append(number)
    for numbers in groups.values():
        if len({case_ids[number] for number in numbers}) > MAX_CASES:
            alike: defaultdict[Hashable, list[tuple[int, Case]]] = defaultdict(list)
            for number in numbers:
                found = case_of(case(number).content)
                if not any(isinstance(part, _UNORDERED) for _, part in found.parts()):
                    seen = frozenset(tuple(map(_masked, each)) for each in outputs(number))
                    alike[found.changed(_mask), seen].append((number, found))
            for members in alike.values():
                yield from _family(case_ids, members)


def _family(case_ids: dict[int, str], members: list[tuple[int, Case]]) -> Iterator[Family]:
    kept = [*dict.fromkeys(case_ids[number] for number, _ in members)][:MAX_CASES]
    others = {
        number: tuple(value for _, value in numbers_in(case))
        for number, case in members
        if case_ids[number] not in kept
    }
    if others:
        yield Family(members[0][0], others, tuple(_varied([case for _, case in members])))


def _varied(cases: list[Case]) -> Iterator[VariedNumber]:
    found: defaultdict[str, dict[Value, None]] = defaultdict(dict)
    for case in cases:
        for path, value in numbers_in(case):
            found[path][value] = None
    for path, values in found.items():
        if len(values) > 1:
            order = sorted(values, key=_size)
            yield VariedNumber(path, len(values), encode(order[0]), encode(order[-1]))


def _size(value: Value) -> tuple[bool, float]:
    number = value.value if isinstance(value, (Int, Float)) else math.nan
    return (True, 0.0) if math.isnan(number) else (False, number)


def _mask(part: Value) -> Value:
    if isinstance(part, (Int, Float)):
        return Symbol("number", type(part).__name__)
    return _with_number(part, lambda: Int(0))


def _masked(output: Value) -> Value:
    return rewrite(output, _mask)
