"""Compare the outputs of a replayed call with its golden function.

Every tensor of the result is read back, chip by chip, and compared with the golden function's own
answer, before any rounding. A tensor without an answer, or without values, says why.

Pass-through ops have no golden function: their result has the values of their input. Where a
composer joins the parts of several chips, its recipe has the dimensions.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NoNumbers
from optrove.frameworks.executor import Compared, Judged
from optrove.frameworks.tensor_values import parts_on_host
from optrove.frameworks.ttnn.execute.device_judge import DeviceJudge, KernelModels
from optrove.frameworks.ttnn.ops import op_of
from optrove.frameworks.ttnn.shadow.expected_outputs import (
    ChipResults,
    ExpectedOutputs,
    WeightedCall,
)
from optrove.frameworks.ttnn.shadow.host_mirrors import HostMirror, Missing
from optrove.frameworks.ttnn.shadow.shadow import shadow_mirror
from optrove.frameworks.ttnn.shadow.transfers import shadow_calls
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
    from collections.abc import Callable, Sequence

    from optrove.frameworks.ttnn.shadow.expected_outputs import Expectation
    from optrove.frameworks.ttnn.signatures import Signatures
    from optrove.model.case import Case


COMPOSER: Final = "mesh_composer"


class OutputComparison:
    """The comparison of one call; ``mirrors`` get the values that are put into the arguments."""

    def __init__(
        self,
        ttnn: Any,
        torch: Any,
        signatures: Signatures,
        case: Case,
        outputs: ExpectedOutputs | None = None,
        *,
        runs_kernels: bool = False,
    ) -> None:
        """Compare a call of ``case``; ``outputs`` know the inputs that earlier calls returned.

        ``runs_kernels`` says whether the results are those of real kernels.
        """
        self._case = case
        self._ttnn = ttnn
        self._torch = torch
        self._runs_kernels = runs_kernels
        self.outputs = self._outputs = outputs or ExpectedOutputs(
            ttnn, torch, signatures, KernelModels(ttnn)
        )
        # In a sequence, expected values are those of golden functions, which round otherwise.
        self._is_in_sequence = outputs is not None
        self._golden = self._outputs.golden
        self.mirrors = self._outputs.mirrors
        self._expected: Expectation | None = None
        # From the numbers that the inputs have, which in a sequence may be others.
        self._own: Expectation | None = None
        self._passes_through = False

    def expect(self, tensor: Any) -> None:
        """Expect that the call returns the values of a tensor, unchanged."""
        self._passes_through = True
        mirror = self.mirrors.of(tensor)
        if isinstance(mirror, Missing):
            self._expected = mirror
            return
        with shadow_calls():
            shards = {id(shard): shard for shard in mirror.shards}
            unpacked = {key: self._golden.unpack(shard) for key, shard in shards.items()}
        self._expected = ChipResults(([unpacked[id(shard)] for shard in mirror.shards],))

    def prepare(self, operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Read the arguments before the call, which may overwrite them."""
        if op_of(self._case.op).passes_numbers_through:
            for tensor in islice(self._golden.tensors((arguments, keywords)), 1):
                self.expect(tensor)
        if operation is None or self._expected is not None:
            return
        with shadow_calls():
            if not self._is_in_sequence:
                self._own = self._expected = self._outputs.prepare(operation, arguments, keywords)
                return
            referenced = self._referenced((arguments, keywords))
            self._expected = self._outputs.prepare(operation, *referenced)
            self._own = self._prepared_as_is(operation, arguments, keywords)

    def _prepared_as_is(
        self, operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Expectation | None:
        """Return the expectation from the numbers that the arguments have, on one chip."""
        others = []
        for tensor in self._golden.tensors((arguments, keywords)):
            if self.mirrors.on_device(tensor):
                should, has = self.mirrors.of(tensor), self._actual(tensor)
                if not _same_values(self._torch, should, has):
                    others.append((tensor, should, has))
        if not others:
            return self._expected
        if any(self.mirrors.chips(tensor) > 1 for tensor, _, _ in others):
            return None
        for tensor, _, has in others:
            self.mirrors.set(tensor, has)
        try:
            return self._outputs.prepare(operation, arguments, keywords)
        finally:
            for tensor, should, _ in others:
                self.mirrors.set(tensor, should)

    def _referenced(self, live: Any) -> Any:
        """Return arguments with the values that they should have, where they have others.

        On one chip, golden functions read the tensors themselves.
        """
        if isinstance(live, dict):
            return {name: self._referenced(each) for name, each in live.items()}
        if isinstance(live, (list, tuple)):
            return type(live)(self._referenced(each) for each in live)
        if not isinstance(live, self._ttnn.Tensor) or not self.mirrors.on_device(live):
            return live
        should, has = self.mirrors.of(live), self._actual(live)
        if not isinstance(should, HostMirror) or not isinstance(has, HostMirror):
            return live
        if len(should.shards) != 1 or len(has.shards) != 1:
            return live
        return live if _same_values(self._torch, should, has) else should.shards[0]

    def compare(
        self, operation: Any, result: Any, kept: Sequence[tuple[str, Any]] = ()
    ) -> tuple[Compared, ...]:
        """Return each tensor of the result with the expected one.

        ``kept`` are the answers of hardware numerics, if these computed the result.
        """
        with shadow_calls():
            if isinstance(result, self._torch.Tensor) and self._passes_through:
                return (self._compare_torch(result),)
            tensors = list(self._golden.tensors(result))
            if self._expected is None:
                return _all_lacking(tensors, "this operation has no golden function")
            if not tensors:
                return (Compared(0, lacking="it returned no tensor"),)
            before = self._torch.get_rng_state()
            answers = self._outputs.answers(operation, self._expected, result)
            if not self._torch.equal(before, self._torch.get_rng_state()):
                return _all_lacking(tensors, "its golden function draws random numbers")
            judge = self._judge(operation, result, kept)
            return tuple(
                self._compare_tensor(place, tensor, answer, judge)
                for place, (tensor, answer) in enumerate(answers)
            )

    def _judge(
        self, operation: Any, result: Any, kept: Sequence[tuple[str, Any]]
    ) -> Callable[[Any, int, int, Any], Judged] | None:
        """Return what judges the numbers of the result; None if their inputs are not known."""
        own = self._own.calls if isinstance(self._own, WeightedCall) else self._own
        calls = own if isinstance(own, list) else None
        if self._passes_through or own is None or isinstance(own, Missing):
            return None
        operation = self._golden.plain(operation)
        name, models = operation.python_fully_qualified_name, self._golden.hardware
        if isinstance(models, KernelModels):
            known = [answer for op, answer in kept if op == name]
            distinct = {id(call) for call in calls or ()}
            models.known = known if len(known) == len(distinct) else []
        judge = DeviceJudge(
            self._ttnn, self._golden, (operation, calls, result), runs_kernels=self._runs_kernels
        )
        if self._own is self._expected:
            return judge.judged
        answers = self._golden.answers(operation, calls or [], result)

        def judged(tensor: Any, place: int, chip: int, pair: tuple[Any, Any]) -> Judged:
            known = answers[place][1]
            if isinstance(known, Missing):
                return Judged(notes=(f"its elements were not judged: {known}",))
            return judge.judged(tensor, place, chip, (known[0], pair[1]))

        return judged

    def follow(
        self, operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], result: Any
    ) -> None:
        """Note the values that the tensors of the result should have, for later calls.

        Where they are not known, those that they have count.
        """
        with shadow_calls():
            expected: dict[int, Any] = {}
            rest = list(self._golden.tensors((arguments, keywords) if result is None else ()))
            if operation is not None:
                rest += self._golden.tensors(self._outputs.written(operation, arguments, keywords))
                if self._expected is not None and not self._passes_through:
                    pairs = self._outputs.output_mirrors(operation, self._expected, result)
                    expected = {id(tensor): mirror for tensor, mirror in pairs}
            for tensor in (*rest, *self._golden.tensors(result)):
                mirror = expected.get(id(tensor))
                if not self.mirrors.on_device(tensor) or not tensor.is_allocated():
                    continue
                if not isinstance(mirror, HostMirror):
                    mirror = self._actual(tensor)
                if op_of(self._case.op).moves_only:
                    self.mirrors.set(tensor, mirror)
                else:
                    self.mirrors.write(tensor, mirror, self._case.op)

    def _actual(self, tensor: Any) -> Any:
        """Return the values of a tensor on the device, or why it has none."""
        shadow = shadow_mirror(self._ttnn, tensor)
        if shadow is not None:
            return shadow
        try:
            return HostMirror(tuple(parts_on_host(tensor)))
        except NoNumbers as lack:
            return Missing(self._case.op, str(lack))

    def _compare_torch(self, result: Any) -> Compared:
        """Compare a torch tensor with the values of the ttnn tensor that it was read from."""
        if not isinstance(self._expected, ChipResults):
            return Compared(0, lacking=str(self._expected))
        expected = joined(self._torch, self._case, self._expected.outputs[0])
        if expected is None:
            return Compared(0, lacking="how it joins the parts of several chips is not known here")
        if _without_ones(expected) == _without_ones(result):
            expected = expected.reshape(result.shape)  # the call may ask for another rank
        if expected.shape != result.shape:
            shapes = f"expected {tuple(expected.shape)}, got {tuple(result.shape)}"
            return Compared(0, lacking=f"shape: {shapes}")
        expected = expected.to(result.dtype)  # the call may ask for another dtype
        return Compared(0, expected, result, expected, exact=not self._is_in_sequence)

    def _compare_tensor(
        self,
        place: int,
        tensor: Any,
        answers: list[Any] | Missing,
        judge: Callable[[Any, int, int, Any], Judged] | None,
    ) -> Compared:
        if isinstance(answers, Missing):
            return Compared(place, lacking=str(answers))
        fault = next(filter(None, (self._golden.fault(each, tensor) for each in answers)), None)
        if fault is not None:
            return Compared(place, lacking=fault)
        try:
            parts = [self._ttnn.to_torch(part) for part in self._ttnn.get_device_tensors(tensor)]
        except NoNumbers as error:
            return Compared(place, lacking=str(error))
        if len(answers) == 1:
            answers = answers * len(parts)
        if len(answers) != len(parts):
            reason = f"{len(answers)} answers for a tensor on {len(parts)} chips"
            return Compared(place, lacking=reason)
        chips = different(self._torch, answers, parts)
        pairs = [(answers[chip], parts[chip]) for chip in chips]
        judged = Judged()
        if judge is not None:
            found = [
                judge(tensor, place, chip, pair) for chip, pair in zip(chips, pairs, strict=True)
            ]
            judged = _joined(found, chips, len(parts))
        expected, actual = map(self._stacked, map(list, zip(*pairs, strict=True)))
        # Values of a block share an exponent: they have no steps of their own to count in.
        blocks = (self._ttnn.bfloat8_b, self._ttnn.bfloat4_b)
        rounded = None if tensor.dtype in blocks else expected.to(actual.dtype)
        if rounded is not None and rounded.is_floating_point():
            # A number beyond the range of the dtype is infinite there, and no fault.
            expected = self._torch.where(rounded.isfinite(), expected, rounded.to(expected.dtype))
        exact = self._passes_through and not self._is_in_sequence
        return Compared(place, expected, actual, rounded, exact=exact, judged=judged)

    def _stacked(self, parts: list[Any]) -> Any:
        return parts[0] if len(parts) == 1 else self._torch.stack(parts)


def _all_lacking(tensors: list[Any], reason: str) -> tuple[Compared, ...]:
    return tuple(Compared(place, lacking=reason) for place in range(len(tensors)))


def _without_ones(tensor: Any) -> list[int]:
    return [size for size in tensor.shape if size != 1]


def different(torch: Any, answers: list[Any], parts: list[Any]) -> list[int]:
    """Return the chips without those that have the values and the answer of an earlier one."""
    kept: list[int] = []
    for chip, (answer, part) in enumerate(zip(answers, parts, strict=True)):
        alike = (parts[other] for other in kept if answers[other] is answer)
        if not any(torch.equal(part, known) for known in alike):
            kept.append(chip)
    return kept


def _joined(found: list[Judged], chips: list[int], count: int) -> Judged:
    """Return what was found on several chips, each with its number."""
    if count == 1:
        return found[0]
    return Judged(
        faults=tuple(
            f"on chip {chip}: {text}"
            for chip, each in zip(chips, found, strict=True)
            for text in each.faults
        ),
        notes=tuple(
            f"on chip {chip}: {text}"
            for chip, each in zip(chips, found, strict=True)
            for text in each.notes
        ),
    )


def _same_values(torch: Any, some: Any, others: Any) -> bool:
    """Return whether two mirrors hold the same numbers; those that are missing are the same."""
    if not isinstance(some, HostMirror) or not isinstance(others, HostMirror):
        return True
    return len(some.shards) == len(others.shards) and all(
        torch.equal(one.to_torch().to(other.dtype), other)
        for one, other in zip(some.shards, (each.to_torch() for each in others.shards), strict=True)
    )


def joined(torch: Any, case: Case, parts: Sequence[Any]) -> Any:
    """Return the parts of all chips, in row-major order, joined as a call joins them.

    None if that is unknown.
    """
    composer = dict(case.arguments).get(COMPOSER, Null())
    if isinstance(composer, Null):
        return parts[0] if all(part is parts[0] for part in parts) else None
    recipe = composer.recipe if isinstance(composer, Handle) else None
    fields = {} if recipe is None else dict(recipe.fields)
    shape = _shape(fields.get("mesh_shape_override")) or _mesh_shape(case)
    dims = _integers(fields.get("dims"))
    if not dims or len(dims) != len(shape) or math.prod(shape) != len(parts):
        return None
    left = list(parts)
    for dim, size in zip(reversed(dims), reversed(shape), strict=True):
        rows = range(0, len(left), size)
        left = [torch.cat(left[start : start + size], dim) for start in rows]
    return left[0]


def _mesh_shape(case: Case) -> tuple[int, ...]:
    """Return the shape of the mesh of the first tensor; empty if it is unknown."""
    for _, value in case.arguments:
        match value:
            case TensorSpec(placement=TtnnPlacement(mesh_shape=tuple(shape))):
                return shape
            case TensorSpec(placement=TtnnPlacement(mesh=MeshPlacement(coordinates=chips))):
                return tuple(max(places) + 1 for places in zip(*chips, strict=True))
    return ()


def _shape(value: Value | None) -> tuple[int, ...]:
    return _integers(dict(value.fields).get("shape")) if isinstance(value, Struct) else ()


def _integers(value: Value | None) -> tuple[int, ...]:
    items = value.items if isinstance(value, List) else ()
    return tuple(item.value for item in items if isinstance(item, Int))
