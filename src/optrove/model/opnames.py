"""The names of operations as people write them, and the operations that they mean."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

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
