"""Names of operations, patterns for them, and which calls are counted.

Every call is recorded. Lists and counts leave out two kinds unless the user asks for them, so that
a number means the same everywhere: calls of ops that only move data (``--all-ops`` includes them),
and nested calls, which other ops make (``--nested``). This module is the only place that decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable


ANY = "*"


def op_pattern(name: str) -> re.Pattern[str]:
    """Return the pattern of full names for ``add``, ``ttnn::add`` or ``ttnn.add``.

    ``*`` stands for anything. An ATen operation may be named without its overload: ``addmm``,
    ``aten.addmm`` and ``aten::addmm`` mean ``torch.ops.aten.addmm.default``.
    """
    dotted = name.replace("::", ".")
    body = _body(dotted)
    if dotted.startswith("ttnn."):
        return re.compile(body)
    if dotted.startswith("torch."):
        overload = r"(?:\.\w+)?" if dotted.startswith("torch.ops.") else ""
        return re.compile(body + overload)
    return re.compile(
        rf"(?:(?:ttnn\.|torch\.(?:.*\.)?)?{body}|torch\.ops\.\w+\.{body}\.\w+"
        rf"|torch\.ops\.{body}\.\w+)"
    )


def meant_ops(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the ``known`` ops that ``name`` means, in their order.

    If no op has the name, it may be the end of a longer one: ``paged_fill_cache`` means
    ``ttnn.experimental.paged_fill_cache``.
    """
    every = tuple(known)
    pattern = op_pattern(name)
    found = tuple(op for op in every if pattern.fullmatch(op))
    if found:
        return found
    ending = re.compile(r".*\." + _body(name.replace("::", ".")))
    return tuple(op for op in every if ending.fullmatch(op))


def full_pattern(name: str, known: Iterable[str]) -> str | None:
    """Return one full name or pattern for exactly the ops that ``name`` means.

    None if there is no such pattern, as for ops of two frameworks that share a name.
    """
    every = tuple(known)
    meant = meant_ops(name, every)
    if len(meant) == 1:
        return meant[0]
    dotted = name.replace("::", ".")
    for pattern in (dotted, f"ttnn.{dotted}", f"*.{dotted}", f"torch.ops.*{dotted}.*"):
        fits = re.compile(_body(pattern))
        if meant and meant == tuple(op for op in every if fits.fullmatch(op)):
            return pattern
    return None


def _body(dotted: str) -> str:
    return ".*".join(re.escape(part) for part in dotted.split(ANY))


VECTORS: Final = "sweep."
"""The prefix of the ops of vectors, which sweep modules generate and no model calls."""

BEYOND_VECTORS: Final = "sweep/"
"""The first text after all texts with that prefix, compared by bytes."""

DATA_MOVEMENT_OPS: Final = frozenset(
    {
        "ttnn.Tensor.cpu",
        "ttnn.Tensor.deallocate",
        "ttnn.Tensor.extract_shard",
        "ttnn.Tensor.item",
        "ttnn.Tensor.to",
        "ttnn.Tensor.to_list",
        "ttnn.Tensor.to_numpy",
        "ttnn.Tensor.to_torch",
        "ttnn.Tensor.to_torch_with_padded_shape",
        "ttnn.Tensor.update_tensor_topology",
        "ttnn.allocate_tensor_on_device",
        "ttnn.allocate_tensor_on_host",
        "ttnn.as_tensor",
        "ttnn.copy_device_to_host_tensor",
        "ttnn.copy_host_to_device_tensor",
        "ttnn.deallocate",
        "ttnn.dump_tensor",
        "ttnn.from_device",
        "ttnn.from_torch",
        "ttnn.load_tensor",
        "ttnn.reallocate",
        "ttnn.synchronize_device",
        "ttnn.to_device",
        "ttnn.to_dtype",
        "ttnn.to_torch",
    }
)


def is_data_movement(op: str) -> bool:
    """Return whether an op only moves data."""
    return op in DATA_MOVEMENT_OPS


def is_vector(op: str) -> bool:
    """Return whether an op stands for the vectors of a sweep module."""
    return op.startswith(VECTORS)


def is_listed(op: str) -> bool:
    """Return whether lists and counts include an op by default: models call it, to compute."""
    return not is_data_movement(op) and not is_vector(op)


@dataclass(frozen=True, slots=True)
class Counting:
    """Which calls are counted besides: of ops that only move data, and nested ones."""

    all_ops: bool = False
    nested: bool = False


@dataclass(frozen=True, slots=True)
class OpCalls:
    """The number of calls and Cases of an op; ``raised`` calls are counted where that is known.

    Other ops made ``nested_calls``, and only these have ``nested_cases``; neither is in the others.
    """

    op: str
    cases: int
    calls: int
    nested_cases: int = 0
    nested_calls: int = 0
    raised: int = 0

    @property
    def hidden(self) -> bool:
        """Whether lists leave the op out by default, as ``is_listed`` decides."""
        return not is_listed(self.op)


@dataclass(frozen=True, slots=True)
class Amount:
    """The number of ops, cases and calls."""

    ops: int = 0
    cases: int = 0
    calls: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.ops + other.ops, self.cases + other.cases, self.calls + other.calls)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The calls that are recorded but not counted, each in one of two groups.

    ``moving`` are calls of ops that only move data, as ``all_ops`` would count them; ``nested``
    are the rest: calls that other ops made.
    """

    moving: Amount = field(default_factory=Amount)
    nested: Amount = field(default_factory=Amount)

    def __add__(self, other: LeftOut) -> LeftOut:
        return LeftOut(self.moving + other.moving, self.nested + other.nested)


@dataclass(frozen=True, slots=True)
class Counted:
    """The counted calls, and those left out; together they are all recorded calls."""

    amount: Amount = field(default_factory=Amount)
    left: LeftOut = field(default_factory=LeftOut)


def add_up(ops: Iterable[OpCalls], counting: Counting | None = None) -> Counted:
    """Add up the calls of ops; an op without a counted call is not counted itself."""
    asked = counting or Counting()
    total, moving, nested = Amount(), Amount(), Amount()
    for each in ops:
        cases, calls = each.cases, each.calls
        if asked.nested:
            cases, calls = cases + each.nested_cases, calls + each.nested_calls
        elif each.nested_calls:
            nested += Amount(1, each.nested_cases, each.nested_calls)
        amount = Amount(int(cases > 0), cases, calls)
        if not (asked.all_ops or is_listed(each.op)):
            moving += amount
        else:
            total += amount
    return Counted(total, LeftOut(moving, nested))
