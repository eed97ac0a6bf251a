"""What is counted: the calls that a model makes itself, of ops that compute.

Every call is recorded. Two kinds are left out of counts of calls and cases unless asked for, so
that a number means the same wherever it stands: calls of ops that only move data (``hidden``), and
nested calls, which other ops make. This is the one place that decides it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from optrove.model.hidden import is_hidden

if TYPE_CHECKING:
    from collections.abc import Iterable


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
