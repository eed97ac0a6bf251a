"""What a sweep takes over from a traced call: the specs of its tensors, and where results go."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.model.values import Struct, TensorSpec, TtnnPlacement
from optrove.model.walk import walk

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.model.case import Case

MEMORY_CONFIG: Final = "ttnn.MemoryConfig"
USUAL_TILE: Final = (32, 32)

_RESULTS: Final = ("output", "optional_output")
"""How the names of parameters begin that take tensors for results."""

_FIRST: Final = (r"arg(\d+)", r"\w*_q", r"\w*_k", r"input\w*", "predicate", "true_value", "query")
_LAST: Final = (r"bias\w*", "beta", r"residual\w*")
"""Which parameters come before and after all others. Cases know their arguments by name, and in
signatures these stand at the ends; within a row the order is that of the alphabet."""


@dataclass(frozen=True, slots=True)
class TracedTensor:
    """The spec of one input: ``memory`` is None on the host, ``tile`` where it is the usual one.

    ``shape`` is what one chip holds, ``mesh`` the chips that hold such a part; None for one.
    """

    shape: tuple[int, ...]
    dtype: str
    layout: str
    tile: tuple[int, int] | None = None
    memory: Struct | None = None
    mesh: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Traced:
    """One traced configuration; ``output`` is the memory that the call asked for, if it did."""

    op: str
    tensors: tuple[TracedTensor, ...]
    output: Struct | None = None


@dataclass(frozen=True, slots=True)
class Distinct:
    """The configurations of an op that a sweep runs, and what became of the others.

    ``traced == len(kept) + repeated + other_arity + untensored``.
    """

    op: str
    traced: int
    arity: int
    kept: tuple[Traced, ...]
    repeated: int = 0
    other_arity: int = 0
    untensored: int = 0

    def __str__(self) -> str:
        text = f"{self.op}: {self.traced:,} traced, {len(self.kept):,} distinct"
        if self.other_arity:
            text += f", {self.other_arity:,} without {self.arity} tensors left out"
        if self.untensored:
            text += f", {self.untensored:,} without tensors of ttnn left out"
        return text


def traced_of(case: Case) -> Traced | None:
    """Return what a sweep takes over from a case; None if it has no tensor of ttnn."""
    specs = tensors_of(case)
    if not specs:
        return None
    return Traced(case.op, tuple(map(_tensor, specs)), _output(case))


def tensors_of(case: Case) -> list[TensorSpec]:
    """Return the tensors of ttnn that a case takes, in the usual order of parameters."""
    found = []
    for name, value in sorted(case.arguments, key=lambda argument: _place(argument[0])):
        if name.startswith(_RESULTS):
            continue
        found += [
            part
            for _, part in walk(value)
            if isinstance(part, TensorSpec) and isinstance(part.placement, TtnnPlacement)
        ]
    return found


def _place(name: str) -> tuple[int, int, str]:
    for rank, pattern in enumerate(_FIRST):
        match = re.fullmatch(pattern, name)
        if match is not None:
            return rank, int(match[1]) if match.groups() else 0, name
    for rank, pattern in enumerate(_LAST, start=len(_FIRST) + 1):
        if re.fullmatch(pattern, name):
            return rank, 0, name
    return len(_FIRST), 0, name


def distinct(op: str, cases: Iterable[Case], arity: int | None = None) -> Distinct:
    """Return the configurations with different inputs, the first of each, in their order.

    They have as many tensors as most have, or as ``arity`` says.
    """
    told = [traced_of(case) for case in cases]
    found = [each for each in told if each is not None]
    wanted = _usual_arity(found) if arity is None else arity
    fitting = [each for each in found if len(each.tensors) == wanted]
    kept: dict[tuple[TracedTensor, ...], Traced] = {}
    for each in fitting:
        kept.setdefault(each.tensors, each)
    return Distinct(
        op=op,
        traced=len(told),
        arity=wanted,
        kept=tuple(kept.values()),
        repeated=len(fitting) - len(kept),
        other_arity=len(found) - len(fitting),
        untensored=len(told) - len(found),
    )


def _usual_arity(found: Sequence[Traced]) -> int:
    counts = Counter(len(each.tensors) for each in found)
    return max(counts, key=lambda arity: (counts[arity], -arity), default=0)


def _tensor(spec: TensorSpec) -> TracedTensor:
    placement = spec.placement
    assert isinstance(placement, TtnnPlacement)  # noqa: S101 - chosen so; narrows the type
    tile = None if placement.tile is None else placement.tile.shape
    shape = placement.mesh_shape
    return TracedTensor(
        shape=spec.shape,
        dtype=spec.dtype,
        layout=placement.layout,
        tile=None if tile == USUAL_TILE else tile,
        memory=None if placement.storage == "host" else placement.memory,
        mesh=shape if shape and any(size != 1 for size in shape) else None,
    )


def _output(case: Case) -> Struct | None:
    """Return the memory that a call asked for: what its name says, else the first there is."""
    found = {
        name: value
        for name, value in case.arguments
        if isinstance(value, Struct) and value.type == MEMORY_CONFIG
    }
    if "memory_config" in found:
        return found["memory_config"]
    return next(iter(found.values()), None)
