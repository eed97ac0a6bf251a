"""Compare the outputs of a replayed call with its golden function.

Such calls have no golden function. Where a composer puts the parts of several chips together,
its recipe says along which dimensions.

Every tensor of the result is read back, chip by chip, and put beside the golden function's own
answer, which nothing has rounded yet. What has no answer, or no numbers, says why.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NoNumbers
from optrove.frameworks.executor import Compared
from optrove.frameworks.ttnn.probe.prepared_weights import Arrangements
from optrove.frameworks.ttnn.shadow.expecting import Expecting, PerChip
from optrove.frameworks.ttnn.shadow.golden import Golden
from optrove.frameworks.ttnn.shadow.host_mirrors import Missing, Twins
from optrove.frameworks.ttnn.shadow.transfers import working
from optrove.model.values import (
    Handle,
    Int,
    List,
    MeshPlacement,
    Null,
    Struct,
    TensorSpec,
    TtnnPlacement,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optrove.frameworks.ttnn.shadow.expecting import Preparation
    from optrove.frameworks.ttnn.signatures import Signatures
    from optrove.model.case import Case


SAME_NUMBERS: Final = frozenset(
    {
        "ttnn.Tensor.cpu",
        "ttnn.Tensor.to",
        "ttnn.Tensor.to_torch",
        "ttnn.to_torch",
    }
)
"""Calls that give the numbers of their first tensor in another place, layout or framework."""

COMPOSER: Final = "mesh_composer"


def joined(torch: Any, case: Case, parts: Sequence[Any]) -> Any:
    """Return what a call makes of the parts of all chips, in row-major order of the chips.

    It is None where that cannot be told.
    """
    composer = dict(case.arguments).get(COMPOSER, Null())
    if isinstance(composer, Null):
        return parts[0] if all(part is parts[0] for part in parts) else None
    recipe = composer.recipe if isinstance(composer, Handle) else None
    fields = {} if recipe is None else dict(recipe.fields)
    shape = _shape(fields.get("mesh_shape_override")) or _mesh_shape(case)
    dims = _numbers(fields.get("dims"))
    if not dims or len(dims) != len(shape) or math.prod(shape) != len(parts):
        return None
    left = list(parts)
    for dim, size in zip(reversed(dims), reversed(shape), strict=True):
        rows = range(0, len(left), size)
        left = [torch.cat(left[start : start + size], dim) for start in rows]
    return left[0]


def _mesh_shape(case: Case) -> tuple[int, ...]:
    """Return the shape of the mesh that the first tensor lies on, empty if that is unknown."""
    for _, value in case.arguments:
        match value:
            case TensorSpec(placement=TtnnPlacement(mesh_shape=tuple(shape))):
                return shape
            case TensorSpec(placement=TtnnPlacement(mesh=MeshPlacement(coordinates=chips))):
                return tuple(max(places) + 1 for places in zip(*chips, strict=True))
    return ()


def _shape(value: Value | None) -> tuple[int, ...]:
    return _numbers(dict(value.fields).get("shape")) if isinstance(value, Struct) else ()


def _numbers(value: Value | None) -> tuple[int, ...]:
    items = value.items if isinstance(value, List) else ()
    return tuple(item.value for item in items if isinstance(item, Int))


# Keywords that choose a command queue; no golden function takes them.
QUEUES = frozenset({"queue_id", "cq_id"})


class Comparing:
    """The comparison of one call; its ``twins`` are told what is put into the arguments."""

    def __init__(self, ttnn: Any, torch: Any, signatures: Signatures, case: Case) -> None:
        self.twins = Twins(ttnn)
        self._case = case
        self._ttnn = ttnn
        self._torch = torch
        self._golden = Golden(ttnn, torch, self.twins, signatures)
        arrangements = Arrangements(ttnn, torch, self.twins, self._golden)
        self._expecting = Expecting(torch, self.twins, self._golden, signatures, arrangements)
        self._prepared: Preparation | None = None
        self._moved = False

    def expect(self, tensor: Any) -> None:
        """Expect that the call gives the numbers of a tensor, unchanged."""
        self._moved = True
        numbers = self.twins.numbers(tensor)
        if isinstance(numbers, Missing):
            self._prepared = numbers
            return
        with working():
            unlike = {id(shard): shard for shard in numbers.shards}
            known = {key: self._golden.unpack(shard) for key, shard in unlike.items()}
        self._prepared = PerChip(tuple(known[id(shard)] for shard in numbers.shards))

    def prepare(self, operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Read the arguments before the call, which may overwrite them."""
        if self._case.op in SAME_NUMBERS:
            for tensor in islice(self._golden.tensors((arguments, keywords)), 1):
                self.expect(tensor)
        if operation is None or self._prepared is not None:
            return
        plain = {name: value for name, value in keywords.items() if name not in QUEUES}
        with working():
            self._prepared = self._expecting.prepare(operation, arguments, plain)

    def compare(self, operation: Any, result: Any) -> tuple[Compared, ...]:
        """Return each tensor of the result beside what is expected of it."""
        with working():
            if isinstance(result, self._torch.Tensor) and self._moved:
                return (self._read(result),)
            tensors = list(self._golden.tensors(result))
            if self._prepared is None:
                reason = "this is no operation with a golden function"
                return tuple(Compared(at, lacking=reason) for at in range(len(tensors)))
            if not tensors:
                return (Compared(0, lacking="it returned no tensor"),)
            before = self._torch.get_rng_state()
            answers = self._expecting.answers(operation, self._prepared, result)
            if not self._torch.equal(before, self._torch.get_rng_state()):
                reason = "its golden function draws random numbers"
                return tuple(Compared(at, lacking=reason) for at in range(len(tensors)))
            return tuple(
                self._compared(place, tensor, found)
                for place, (tensor, found) in enumerate(answers)
            )

    def _read(self, result: Any) -> Compared:
        """Return what was read into torch beside what the tensor holds."""
        if not isinstance(self._prepared, PerChip):
            return Compared(0, lacking=str(self._prepared))
        expected = joined(self._torch, self._case, self._prepared.parts)
        if expected is None:
            return Compared(0, lacking="how it joins the parts of several chips is not known here")
        if _without_ones(expected) == _without_ones(result):
            expected = expected.reshape(result.shape)  # it was asked for in another rank
        if expected.shape != result.shape:
            shapes = f"{tuple(expected.shape)} was expected, and {tuple(result.shape)} came"
            return Compared(0, lacking=f"the shape {shapes}")
        expected = expected.to(result.dtype)  # the call may have been asked for another dtype
        return Compared(0, expected, result, expected, exact=True)

    def _compared(self, place: int, tensor: Any, found: list[Any] | Missing) -> Compared:
        if isinstance(found, Missing):
            return Compared(place, lacking=str(found))
        fault = next(filter(None, (self._golden.fault(each, tensor) for each in found)), None)
        if fault is not None:
            return Compared(place, lacking=fault)
        try:
            parts = [self._ttnn.to_torch(part) for part in self._ttnn.get_device_tensors(tensor)]
        except NoNumbers as error:
            return Compared(place, lacking=str(error))
        if len(found) == 1:
            found = found * len(parts)
        if len(found) != len(parts):
            reason = f"{len(found)} answers for a tensor on {len(parts)} chips"
            return Compared(place, lacking=reason)
        found, parts = different(self._torch, found, parts)
        expected, actual = self._joined(found), self._joined(parts)
        # Numbers of a block share an exponent: they have no steps of their own to count in.
        blocks = (self._ttnn.bfloat8_b, self._ttnn.bfloat4_b)
        rounded = None if tensor.dtype in blocks else expected.to(actual.dtype)
        return Compared(place, expected, actual, rounded, exact=self._moved)

    def _joined(self, parts: list[Any]) -> Any:
        return parts[0] if len(parts) == 1 else self._torch.stack(parts)


def _without_ones(tensor: Any) -> list[int]:
    return [size for size in tensor.shape if size != 1]


def different(torch: Any, found: list[Any], parts: list[Any]) -> tuple[list[Any], list[Any]]:
    """Leave out chips that have the same as another one, and of which the same is expected."""
    kept: list[tuple[Any, Any]] = []
    for answer, part in zip(found, parts, strict=True):
        alike = (known for other, known in kept if other is answer)
        if not any(torch.equal(part, known) for known in alike):
            kept.append((answer, part))
    return [answer for answer, _ in kept], [part for _, part in kept]
