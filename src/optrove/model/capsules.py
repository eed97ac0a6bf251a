"""Capsules: the real tensors of chosen calls, and the choice of calls that get one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from optrove.errors import BadTarget

if TYPE_CHECKING:
    from collections.abc import Sequence

Tensors: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
"""The hashes of each tensor's parts, by the key of the tensor within its call."""

ALL, FIRST, WORST, EVERY = "all", "first", "worst", "every"

DEFAULT_LIMIT: Final = 1_000_000_000
"""The bytes that the capsules of one run may take, by default."""

_UNITS: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", re.IGNORECASE)
_CASE: Final = re.compile(r"(?=.*\d)[0-9a-f]{6,64}")


@dataclass(frozen=True, slots=True)
class Capsule:
    """The tensors of one call, as hashes of files in ``directory``."""

    run_id: str
    process: int
    op_index: int
    inputs: Tensors
    outputs: Tensors = ()
    directory: str = ""


@dataclass(frozen=True, slots=True)
class CapsuleChoice:
    """The calls that get a capsule.

    ``policy`` chooses among the calls of each case: all of them, the first, every Nth
    (``interval``), or the worst: the one with the most extreme values. ``ops`` (patterns) and
    ``cases`` (beginnings of hashes) restrict the choice; without any, calls of all ops count.
    """

    policy: str = ALL
    interval: int = 1
    ops: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    limit: int = DEFAULT_LIMIT


def capsule_choice(asked: Sequence[str], limit: str | None = None) -> CapsuleChoice | None:
    """Return the choice that the values of ``--capsule`` make together; None for no values.

    Each is an op, the hash of a case, or ``all``, ``first``, ``worst`` or ``every:N``; a size may
    follow the policy, as in ``all:200MB``. BadTarget for anything else.
    """
    if not asked:
        return None
    policies: dict[str, int] = {}
    ops, cases = [], []
    size = None if limit is None else parse_size(limit)
    for text in asked:
        name, _, rest = text.partition(":")
        if name == EVERY:
            policies[EVERY] = _interval(text, rest)
        elif name in (ALL, FIRST, WORST):
            policies[name] = 1
            size = parse_size(rest) if rest else size
        elif _CASE.fullmatch(text):
            cases.append(text)
        elif text:
            ops.append(text)
        else:
            raise BadTarget("--capsule is empty; name an op, a case, worst, first, every:N or all")
    if len(policies) > 1:
        raise BadTarget(
            f"--capsule {' and '.join(policies)} contradict each other; give one of them"
        )
    policy, interval = next(iter(policies.items()), (ALL, 1))
    chosen = DEFAULT_LIMIT if size is None else size
    return CapsuleChoice(policy, interval, tuple(ops), tuple(cases), chosen)


def parse_size(text: str) -> int:
    """Return a number of bytes from a text such as ``500MB`` or ``2g``; BadTarget for others."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise BadTarget(f"{text!r} is not a size; write 500MB, 2GB or a number of bytes")
    return int(float(found[1]) * _UNITS[found[2].lower()])


def _interval(text: str, rest: str) -> int:
    if not rest.isdecimal() or int(rest) < 1:
        raise BadTarget(f"{text!r} is not an interval; write every:100 for every 100th call")
    return int(rest)
