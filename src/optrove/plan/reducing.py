"""Make cases simpler, step by step: fewer arguments, plain memory, smaller and fewer dimensions.

A reduction never adds anything: arguments only go, dimensions only shrink, configurations only
become plain. So whoever applies reductions as long as they change a case comes to an end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Final, TypeAlias

from optrove.model.case import Case
from optrove.model.rewrite import renamed
from optrove.model.values import DeviceRef, Null, Struct, TensorSpec, TtnnPlacement, Value
from optrove.model.walk import walk
from optrove.plan.shrunk_tensors import (
    ALONE,
    PLAIN_MEMORY,
    TILE,
    alone,
    first_dimensions,
    flattened,
    is_plain,
    of_dtype,
    plainly_kept,
    resized,
    with_tensors,
)

PLACE: Final = re.compile(r"arg\d+")
"""What arguments are called of which only the place is known; others follow them."""

OPERAND: Final = re.compile(
    r"arg\d+|self|device|mesh_device|(.*_)?(in|out)puts?(_.*)?|tensors?|[qkv]|.*cache.*|grad_.*"
)
"""Tensors and devices that no operation does without."""

Change: TypeAlias = Callable[[Case], Case]

_PLAIN_DTYPE: Final = "ttnn.bfloat16"
_FLOATS: Final = ("ttnn.bfloat8_b", "ttnn.bfloat4_b", "ttnn.float32")


@dataclass(frozen=True, slots=True)
class Reduction:
    """One way to make a case simpler; ``words`` says which."""

    words: str
    change: Change

    def apply(self, case: Case) -> Case:
        """Return the simpler case; the same one where there is nothing to make simpler."""
        changed = self.change(case)
        return case if changed == case else renamed(changed, {})


def reductions(case: Case) -> list[Reduction]:
    """Return all that makes a case simpler at once, the boldest first."""
    offered = (
        *_without_several(case),
        Reduction("all tensors in interleaved DRAM", _tensors_plainly_kept),
        Reduction("on one chip", _on_one_chip),
        *_sizes(case, _smallest),
        Reduction("without batches", _without_batches),
        *_without_each(case),
        *_plain_arguments(case),
        *_plain_tensors(case),
        *_sizes(case, _half),
        *_single_sizes(case),
        Reduction("without dimensions of size 1", _flat),
        Reduction("all in bfloat16", _in_bfloat16),
    )
    seen = {case}
    found = []
    for each in offered:
        simpler = each.apply(case)
        if simpler not in seen:
            seen.add(simpler)
            found.append(each)
    return found


def _dropping(names: Iterable[str]) -> Reduction:
    gone = frozenset(names)

    def change(case: Case) -> Case:
        return Case(case.op, tuple(each for each in case.arguments if each[0] not in gone))

    return Reduction(f"without {', '.join(sorted(gone))}", change)


def _without_several(case: Case) -> Iterator[Reduction]:
    """Yield what drops all arguments that are neither tensors nor devices, and each half."""
    names = [name for name, value in case.arguments if _is_optional(name, value)]
    middle = len(names) // 2
    for several in (names, names[:middle], names[middle:]):
        if len(several) > 1:
            yield _dropping(several)


def _without_each(case: Case) -> Iterator[Reduction]:
    """Yield what drops one argument, tensors included that are no operands."""
    places = [name for name, _ in case.arguments if PLACE.fullmatch(name)]
    last = max(places, key=lambda name: int(name[3:]), default=None)
    for name, value in case.arguments:
        droppable = not OPERAND.fullmatch(name) if _needs_device(value) else name == last
        if droppable or _is_optional(name, value):
            yield _dropping([name])


def _is_optional(name: str, value: Value) -> bool:
    """Tell whether an argument may be one that is left to its default."""
    return not PLACE.fullmatch(name) and not _needs_device(value)


def _needs_device(value: Value) -> bool:
    return any(isinstance(part, (TensorSpec, DeviceRef)) for _, part in walk(value))


def _plain_arguments(case: Case) -> Iterator[Reduction]:
    """Yield what makes each memory configuration among the arguments plain."""
    for name, value in case.arguments:
        if isinstance(value, Struct) and value.type == PLAIN_MEMORY.type and not is_plain(value):
            yield Reduction(f"{name} is interleaved DRAM", _replacing(name, PLAIN_MEMORY))


def _replacing(name: str, value: Value) -> Change:
    def change(case: Case) -> Case:
        given = tuple((own, value if own == name else old) for own, old in case.arguments)
        return Case(case.op, given)

    return change


def _tensors_plainly_kept(case: Case) -> Case:
    return with_tensors(case, plainly_kept)


def _plain_tensors(case: Case) -> Iterator[Reduction]:
    for number, names in _tensors(case):
        yield Reduction(f"{names} in interleaved DRAM", _of_one(number, plainly_kept))


def _tensors(case: Case) -> Iterator[tuple[int, str]]:
    """Yield the numbers of the tensors of a case, with the arguments that hold them."""
    names: dict[int, list[str]] = {}
    for name, value in case.arguments:
        for _, part in walk(value):
            if isinstance(part, TensorSpec):
                names.setdefault(part.identity, []).append(name)
    for number, holders in names.items():
        yield number, ", ".join(dict.fromkeys(holders))


def _of_one(number: int, change: Callable[[TensorSpec], TensorSpec]) -> Change:
    def only(spec: TensorSpec) -> TensorSpec:
        return change(spec) if spec.identity == number else spec

    return lambda case: with_tensors(case, only)


def _sizes(case: Case, smaller: Callable[[int], int]) -> Iterator[Reduction]:
    """Yield what makes a size smaller wherever it stands, the largest first."""
    sizes = {size for spec in _specs(case) for size in spec.shape}
    for size in sorted(sizes, reverse=True):
        less = smaller(size)
        if less < size:
            yield Reduction(f"{size} becomes {less}", resized(size, less))


def _smallest(size: int) -> int:
    return min(size, TILE) if size % TILE == 0 else 1


def _half(size: int) -> int:
    """Return half of a size, in whole tiles if it has some."""
    if size % TILE == 0:
        return max(TILE, -(-size // 2 // TILE) * TILE)
    return max(1, size // 2)


def _single_sizes(case: Case) -> Iterator[Reduction]:
    """Yield what halves one dimension of one tensor only."""
    known = {spec.identity: spec for spec in _specs(case)}
    for number, names in _tensors(case):
        for place, size in enumerate(known[number].shape):
            less = _half(size)
            if less < size:
                change = first_dimensions(place, less)
                words = f"dimension {place} of {names}: {size} becomes {less}"
                yield Reduction(words, _of_one(number, change))


def _without_batches(case: Case) -> Case:
    for spec in _specs(case):
        for size in spec.shape[:-2]:
            if size > 1:
                case = resized(size, 1, batches_only=True)(case)
    return case


def _flat(case: Case) -> Case:
    ranks = [spec for spec in _specs(case) if prod(spec.shape[:-2]) == 1]
    return with_tensors(case, flattened) if len(ranks) == len(list(_specs(case))) else case


def _on_one_chip(case: Case) -> Case:
    spread = {
        spec.placement.mesh_shape
        for spec in _specs(case)
        if isinstance(spec.placement, TtnnPlacement)
    }
    return alone(case) if spread - {None, ALONE} else case


def _in_bfloat16(case: Case) -> Case:
    def plain(spec: TensorSpec) -> TensorSpec:
        return of_dtype(spec, _PLAIN_DTYPE) if spec.dtype in _FLOATS else spec

    return with_tensors(case, plain)


def _specs(case: Case) -> Iterator[TensorSpec]:
    for _, value in case.arguments:
        for _, part in walk(value):
            if isinstance(part, TensorSpec):
                yield part


def measure(case: Case) -> tuple[int, int]:
    """Return how large a case is: its arguments, and the elements of its tensors."""
    given = [value for _, value in case.arguments if not isinstance(value, Null)]
    return len(given), sum(prod(spec.shape) for spec in _specs(case))
