"""Names of operations, and which of them are counted or hidden.

Their calls are recorded like all others; lists of cases leave them out unless ``--all-ops`` asks
for them. This table is the one place that says which they are.

Every call is recorded. Two kinds are left out of counts of calls and cases unless asked for, so
that a number means the same wherever it stands: calls of ops that only move data (``hidden``), and
nested calls, which other ops make. This is the one place that decides it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable


ANY = "*"


def op_pattern(name: str) -> re.Pattern[str]:
    """Return what matches the full name of an op: ``add``, ``ttnn::add`` and ``ttnn.add`` alike.

    ``*`` stands for anything.
    """
    dotted = name.replace("::", ".")
    prefix = "" if dotted.startswith(("ttnn.", "torch.")) else r"(?:ttnn\.|torch\.(?:.*\.)?)?"
    return re.compile(prefix + _body(dotted))


def meant_ops(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return those of the ``known`` ops that ``name`` means, in their order; empty if none.

    Where nothing has the name, the last parts of a longer name will do:
    ``paged_fill_cache`` means ``ttnn.experimental.paged_fill_cache``.
    """
    every = tuple(known)
    pattern = op_pattern(name)
    found = tuple(op for op in every if pattern.fullmatch(op))
    if found:
        return found
    ending = re.compile(r".*\." + _body(name.replace("::", ".")))
    return tuple(op for op in every if ending.fullmatch(op))


def full_pattern(name: str, known: Iterable[str]) -> str | None:
    """Return one full name or pattern that fits those ops that ``name`` means, and no others.

    None if there is no such pattern, as for ops of two frameworks that have one name.
    """
    every = tuple(known)
    meant = meant_ops(name, every)
    if len(meant) == 1:
        return meant[0]
    dotted = name.replace("::", ".")
    for pattern in (dotted, f"ttnn.{dotted}", f"*.{dotted}"):
        fits = re.compile(_body(pattern))
        if meant and meant == tuple(op for op in every if fits.fullmatch(op)):
            return pattern
    return None


def _body(dotted: str) -> str:
    return ".*".join(re.escape(part) for part in dotted.split(ANY))


VECTORS: Final = "sweep."
"""How the ops of vectors begin, which sweep modules make and no model has called."""

BEYOND_VECTORS: Final = "sweep/"
"""The first text after all that begin so, compared by bytes."""

HIDDEN_OPS: Final = frozenset(
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


def is_hidden(op: str) -> bool:
    """Tell whether an operation is left out of lists of cases."""
    return op in HIDDEN_OPS or op.startswith(VECTORS)


@dataclass(frozen=True, slots=True)
class Counting:
    """What is counted beyond the usual: ops that only move data, and nested calls."""

    all_ops: bool = False
    nested: bool = False


@dataclass(frozen=True, slots=True)
class OpCalls:
    """How often an op was called, with how many Cases: in all, and not by another op."""

    op: str
    cases: int
    calls: int
    outermost_cases: int
    outermost_calls: int


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of ops, their cases, and their calls."""

    ops: int = 0
    cases: int = 0
    calls: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.ops + other.ops, self.cases + other.cases, self.calls + other.calls)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What was recorded and is not counted; nothing is in both.

    ``moving`` are calls of ops that only move data, as far as counting all ops would count them;
    ``nested`` the rest: calls that other ops made, of whatever op.
    """

    moving: Amount = field(default_factory=Amount)
    nested: Amount = field(default_factory=Amount)

    def __add__(self, other: LeftOut) -> LeftOut:
        return LeftOut(self.moving + other.moving, self.nested + other.nested)


@dataclass(frozen=True, slots=True)
class Counted:
    """What is counted, and what is left out; both together are all that was recorded."""

    amount: Amount = field(default_factory=Amount)
    left: LeftOut = field(default_factory=LeftOut)


def add_up(ops: Iterable[OpCalls], counting: Counting | None = None) -> Counted:
    """Add up how often ops were called; an op with nothing that counts is not counted itself."""
    asked = counting or Counting()
    total, moving, nested = Amount(), Amount(), Amount()
    for each in ops:
        cases, calls = each.outermost_cases, each.outermost_calls
        if asked.nested:
            cases, calls = each.cases, each.calls
        amount = Amount(int(cases > 0), cases, calls)
        if is_hidden(each.op) and not asked.all_ops:
            moving += amount
        else:
            total += amount
        nested += Amount(int(each.calls > calls), each.cases - cases, each.calls - calls)
    return Counted(total, LeftOut(moving, nested))
