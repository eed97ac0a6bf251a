"""Merge troves into one, which is made if need be."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from optrove.flows.stores import reading, sum_of, writing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from optrove.flows.stores import Recovered
    from optrove.model.trove import Added


@dataclass(frozen=True, slots=True)
class Merged:
    """The trove that has everything now, and what that has changed in it."""

    store: str
    added: Added


def merge_into(output: str, troves: Sequence[str], tell: Callable[[Recovered], object]) -> Merged:
    """Add all that these troves hold to ``output``, or nothing if one cannot be read."""
    with ExitStack() as stack:
        readers = [stack.enter_context(reading(each, tell)) for each in troves]
        trove = stack.enter_context(writing(output, tell))
        with trove.together():
            added = sum_of(map(trove.merge, readers))
    return Merged(output, added)
