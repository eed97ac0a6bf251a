"""Compute what a call should return: by collectives, golden functions and known side effects.

Golden functions of collectives expect a whole mesh at once, in forms that differ from op to op. The
few collectives that models depend on are implemented here, by lines of chips; every other op that
communicates between chips leaves its output without values on a mesh.

``prepare`` comes before the call, which may overwrite or free its inputs. Nothing is guessed: an
unknown output is a ``Missing`` with its reason. The shadow stores the outputs as mirrors, and a
replay compares them with what the device computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any, TypeAlias

from optrove.frameworks.ttnn.ops import op_of
from optrove.frameworks.ttnn.shadow.collectives import all_gather
from optrove.frameworks.ttnn.shadow.golden import (
    OUTPUT_ARGUMENTS,
    GoldenCall,
    GoldenFunctions,
    first_line,
    inherited,
)
from optrove.frameworks.ttnn.shadow.golden_overrides import with_bias_and_activation
from optrove.frameworks.ttnn.shadow.host_mirrors import HostMirror, HostMirrors, Missing, Unwritten
from optrove.frameworks.ttnn.shadow.prepared_weights import (
    REASON,
    PreparedWeights,
    prepared,
)
from optrove.frameworks.ttnn.signatures import Signatures

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from optrove.frameworks.ttnn.shadow.collectives import Collective, Dimensions, Line
    from optrove.frameworks.ttnn.shadow.hardware import HardwareNumerics
    from optrove.frameworks.ttnn.shadow.host_mirrors import MirrorOrMissing

# Keywords that choose a command queue; no golden function takes them.
QUEUES = frozenset({"queue_id", "cq_id"})

# Parameters that every op which has them writes to. Most such ops return what they wrote, but not
# always in the caller's form, and never the parts that only served in between.
CACHES = frozenset({"cache", "cache_tensor", "cache_tensor1", "cache_tensor2"})
SCRATCH = frozenset({"buffer_tensor", "exchange_buffer", "forwarding_buffer"})
SCRATCH_PREFIXES = ("persistent_", "intermediate_")

# Parameters that such an op also reads; all others that it writes to do not affect its result.
READ_TOO = CACHES | {"inputs", "input_tensor"}


def written(name: str, parameters: frozenset[str]) -> frozenset[str]:
    """Return those of an op's parameters that it may write to without returning them."""
    scratch = {parameter for parameter in parameters if parameter.startswith(SCRATCH_PREFIXES)}
    return parameters & ({*op_of(name).writes} | CACHES | SCRATCH | scratch)


# Only ops whose result depends on other chips, or on their chip's place among them, have these.
PARAMETERS = frozenset({"cluster_axis", "topology", "multi_device_global_semaphore"})


def talks_between_chips(operation: Any, parameters: Collection[str]) -> bool:
    """Return whether an op with these parameters reads other chips than its own."""
    name = operation.python_fully_qualified_name
    home = getattr(operation.golden_function, "__module__", "")
    return (
        op_of(name).collective is not None
        or home == "ttnn.operations.ccl"
        or "ring_" in name
        or not PARAMETERS.isdisjoint(parameters)
    )


def dimension(name: str, bound: Mapping[str, Any]) -> Dimensions | None:
    """Return the tensor dimension of a collective call, or two; None if it is unknown."""
    if op_of(name).has_no_dim:
        return 0
    asked = bound.get("dim")
    if type(asked) is int:
        return asked
    joined, split = bound.get("in_dim"), bound.get("out_dim")
    return (joined, split) if type(joined) is int and type(split) is int else None


def lines(shape: Sequence[int], axis: int | None) -> list[list[int]]:
    """Return the chips, numbered row by row, that communicate along a mesh axis."""
    count = math.prod(shape)
    if axis is None:
        return [list(range(count))]
    step = math.prod(shape[axis + 1 :])
    starts = [chip for chip in range(count) if chip // step % shape[axis] == 0]
    return [[start + step * place for place in range(shape[axis])] for start in starts]


def apply(
    torch: Any, collective: Collective, parts: Line, *, groups: list[list[int]], dim: Dimensions
) -> list[Any]:
    """Return the result on each chip after the collective ran on every line of chips."""
    results: list[Any] = [None] * len(parts)
    for group in groups:
        answers = collective(torch, [parts[chip] for chip in group], dim)
        for chip, answer in zip(group, answers, strict=True):
            results[chip] = answer
    return results


@dataclass(frozen=True, slots=True)
class ChipResults:
    """The torch results of a collective: of each output, a tensor for each chip of the mesh."""

    outputs: tuple[list[Any], ...]

    def of(self, tensors: list[Any]) -> list[tuple[Any, list[Any]]]:
        """Return each tensor of a result with its part for each chip."""
        return list(zip(tensors, cycle(self.outputs), strict=False))


@dataclass(frozen=True, slots=True)
class WeightedCall:
    """The golden calls of an op that prepares its weights, and the mirrors of those weights."""

    calls: list[GoldenCall] | Missing
    weights: tuple[MirrorOrMissing, ...]


Expectation: TypeAlias = "list[GoldenCall] | ChipResults | WeightedCall | Missing"


class ExpectedOutputs:
    """The expected outputs of calls of one loaded ttnn, from the mirrors of their inputs."""

    def __init__(
        self,
        ttnn: Any,
        torch: Any,
        signatures: Signatures | None = None,
        hardware: HardwareNumerics | None = None,
    ) -> None:
        self.mirrors = HostMirrors(ttnn)
        self._signatures = signatures or Signatures()
        self.golden = GoldenFunctions(ttnn, torch, self.mirrors, self._signatures, hardware)
        self.weights = PreparedWeights(ttnn, torch, self.mirrors, self.golden)
        self._torch = torch

    def prepare(
        self, operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Expectation:
        """Return the inputs for computing the outputs of a call, or the obstacle; never raise.

        Faults in the arguments are left to ttnn, which sees them next.
        """
        operation = self.golden.plain(operation)
        name = operation.python_fully_qualified_name
        if op_of(name).writes_nothing:
            return Unwritten(name, "it allocates memory and nothing has written to it since")
        keywords = {key: value for key, value in keywords.items() if key not in QUEUES}
        try:
            inputs = self.golden.tensors((arguments, keywords))
            several = any(self.mirrors.chips(tensor) > 1 for tensor in inputs)
            unread = self.written(operation, arguments, keywords).keys() - READ_TOO
            if op_of(name).line_golden is not None:
                bound = self._signatures.bind(operation, arguments, keywords)
                return self._by_lines(operation, {key: bound[key] for key in bound.keys() - unread})
            parameters = self._signatures.parameters(operation) if several else ()
            if several and talks_between_chips(operation, parameters):
                return self._collective(name, self._signatures.bind(operation, arguments, keywords))
            if op_of(name).weights:
                return self._with_plain_weights(operation, arguments, keywords)
            return self.golden.prepare(operation, arguments, keywords, unread)
        except Exception as error:  # noqa: BLE001 - ttnn judges the arguments; it is counted
            return Missing(name, f"torch cannot compute it from its inputs: {first_line(error)}")

    def written(
        self, operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the arguments that this call writes to without returning them, by name."""
        operation = self.golden.plain(operation)
        name = operation.python_fully_qualified_name
        candidates = written(name, self._signatures.parameters(operation))
        if not candidates:
            return {}
        keywords = {key: value for key, value in keywords.items() if key not in QUEUES}
        bound = self._signatures.bind(operation, arguments, keywords)
        if op_of(name).writes_in_training_only and not bound.get("training", False):
            return {}
        other = op_of(name).writes_only_with
        if other is not None and bound.get(other) is None:
            return {}
        return {parameter: bound[parameter] for parameter in candidates & bound.keys()}

    def answers(
        self, operation: Any, expected: Expectation, result: Any
    ) -> list[tuple[Any, list[Any] | Missing]]:
        """Return each tensor of the result with a torch tensor per chip, or one for all."""
        if isinstance(expected, ChipResults):
            return [*expected.of(list(self.golden.tensors(result)))]
        operation = self.golden.plain(operation)
        if not isinstance(expected, WeightedCall):
            return self.golden.answers(operation, expected, result)
        name = operation.python_fully_qualified_name
        found = self.golden.answers(operation, expected.calls, result)
        return [*found[:1], *((tensor, Missing(name, REASON)) for tensor, _ in found[1:])]

    def output_mirrors(
        self, operation: Any, expected: Expectation, result: Any
    ) -> list[tuple[Any, MirrorOrMissing]]:
        """Return each tensor of the result with its mirror."""
        operation = self.golden.plain(operation)
        name = operation.python_fully_qualified_name
        if isinstance(expected, ChipResults):
            return [
                (tensor, self.golden.mirror(name, tensor, parts))
                for tensor, parts in expected.of(list(self.golden.tensors(result)))
            ]
        if not isinstance(expected, WeightedCall):
            return self.golden.mirrors(operation, expected, result)
        found = self.golden.mirrors(operation, expected.calls, result)
        weights = zip(found[1:], expected.weights, strict=False)
        return [*found[:1], *((tensor, mirror) for (tensor, _), mirror in weights)]

    def _with_plain_weights(
        self, operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> WeightedCall:
        """Return the golden calls with plain weights in place of prepared ones."""
        name = operation.python_fully_qualified_name
        bound = self._signatures.bind(operation, arguments, keywords)
        weights = self.weights.plain(name, bound)
        plain = {
            id(bound[argument]): self.weights.joined(mirror)
            for argument, mirror in weights.items()
            if isinstance(mirror, HostMirror)
        }
        arguments = tuple(plain.get(id(value), value) for value in arguments)
        keywords = {key: plain.get(id(value), value) for key, value in keywords.items()}
        calls = self.golden.prepare(operation, arguments, keywords)
        return WeightedCall(calls, tuple(prepared(name, each) for each in weights.values()))

    def _by_lines(self, operation: Any, bound: dict[str, Any]) -> ChipResults | Missing:
        """Return the results of an op that depends on the chips of each line, on each chip."""
        name = operation.python_fully_qualified_name
        used = {key: value for key, value in bound.items() if key not in OUTPUT_ARGUMENTS}
        tensors = list(self.golden.tensors(used))
        for tensor in tensors:
            mirror = self.mirrors.of(tensor)
            if isinstance(mirror, Missing):
                return inherited(name, mirror)
        shape = tuple(tensors[0].device().shape)
        groups = lines(shape, bound.get("cluster_axis"))
        count = max(map(self.mirrors.chips, tensors))
        if count not in (1, math.prod(shape)):
            return Missing(name, f"its input is on part of a mesh of {shape} only")
        chips = self.golden.on_chips(math.prod(shape), used)
        answers: list[Any] = [None] * len(chips)
        line_golden = op_of(name).line_golden
        assert line_golden is not None  # noqa: S101 - narrows the type; the caller has looked
        for group in groups:
            found = line_golden([chips[chip] for chip in group], operation.golden_function)
            for chip, answer in zip(group, found, strict=True):
                answers[chip] = answer if isinstance(answer, list) else [answer]
        return ChipResults(tuple(map(list, zip(*answers, strict=True))))

    def _collective(self, name: str, bound: dict[str, Any]) -> ChipResults | Missing:
        """Return the results of a collective on each chip, or why they are unknown."""
        collective = op_of(name).collective or op_of(name).collective_with_product
        dim = dimension(name, bound)
        tensor = bound.get("input_tensor")
        if collective is None or dim is None or tensor is None:
            return Missing(name, "it talks between chips in a way that is not known here")
        used = [
            bound[each]
            for each in ("input_tensor", "weight_tensor", "bias")
            if bound.get(each) is not None
        ]
        mirrors = [self.mirrors.of(each) for each in used]
        lost = next((mirror for mirror in mirrors if isinstance(mirror, Missing)), None)
        if lost is not None:
            return inherited(name, lost)
        shape = tuple(self.mirrors.device(tensor).shape)
        groups = lines(shape, bound.get("cluster_axis"))
        known = [mirror.shards for mirror in mirrors if isinstance(mirror, HostMirror)]
        if sum(map(len, groups)) != len(known[0]):
            return Missing(name, f"its input is on part of a mesh of {shape} only")
        parts = [self.golden.unpack(shard) for shard in known[0]]
        exchange = partial(apply, self._torch, collective, groups=groups, dim=dim)
        if op_of(name).collective_with_product is None:
            return ChipResults((exchange(parts),))
        others = [[self.golden.unpack(shard) for shard in shards] for shards in known[1:]]
        multiply = partial(_products, others, bound)
        if collective is all_gather:
            gathered = exchange(parts)
            return ChipResults((gathered, multiply(gathered)))
        products = multiply(parts)
        return ChipResults((products, exchange(products)))


def _products(others: Sequence[Line], bound: Mapping[str, Any], parts: Line) -> list[Any]:
    """Return the product of each chip's part and weights, with the bias and the activation."""
    results = []
    for chip, part in enumerate(parts):
        weight, *bias = (shards[chip] for shards in others)
        left = part.transpose(-2, -1) if bound.get("transpose_a") else part
        right = weight.transpose(-2, -1) if bound.get("transpose_b") else weight
        facts = {**bound, "bias": bias[0] if bias else None}
        results.append(with_bias_and_activation(left @ right, facts))
    return results
