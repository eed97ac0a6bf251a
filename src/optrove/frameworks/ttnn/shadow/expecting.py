"""What a call should compute: effects, collectives, golden results.

Golden functions of such ops expect a whole mesh at once, in forms that differ from op to op.
The few collectives that models live on are small enough to state here, by lines of chips; every
other op that talks between chips leaves its output without numbers on a mesh.

``prepare`` comes before the call, which may overwrite or free its inputs. Nothing is guessed:
where it is not known what comes out, there is a ``Missing`` with its reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from optrove.frameworks.ttnn.probe.prepared_weights import LAYING_OUT, laid_out
from optrove.frameworks.ttnn.probe.prepared_weights import REASON as LAID_OUT
from optrove.frameworks.ttnn.shadow.golden import Prepared, first_line, inherited
from optrove.frameworks.ttnn.shadow.host_mirrors import Missing, Twin

if TYPE_CHECKING:
    from optrove.frameworks.ttnn.probe.prepared_weights import Arrangements
    from optrove.frameworks.ttnn.shadow.golden import Golden
    from optrove.frameworks.ttnn.shadow.host_mirrors import Numbers, Twins
    from optrove.frameworks.ttnn.signatures import Signatures


# Ops that give memory without writing to it.
UNWRITTEN = frozenset({"ttnn.empty", "ttnn.empty_like", "ttnn.allocate_tensor_on_device"})

# Ops that never change what their input holds, though their output may share its buffer.
MOVES = frozenset(
    {
        "ttnn.bitcast",
        "ttnn.concat",
        "ttnn.expand",
        "ttnn.experimental.view",
        "ttnn.interleaved_to_sharded",
        "ttnn.move",
        "ttnn.narrow",
        "ttnn.pad",
        "ttnn.permute",
        "ttnn.reallocate",
        "ttnn.repeat",
        "ttnn.reshape",
        "ttnn.reshape_on_device",
        "ttnn.reshard",
        "ttnn.sharded_to_interleaved",
        "ttnn.slice",
        "ttnn.squeeze",
        "ttnn.tilize",
        "ttnn.tilize_with_val_padding",
        "ttnn.tilize_with_zero_padding",
        "ttnn.to_dtype",
        "ttnn.to_layout",
        "ttnn.to_memory_config",
        "ttnn.transpose",
        "ttnn.typecast",
        "ttnn.unsqueeze",
        "ttnn.unsqueeze_to_4D",
        "ttnn.untilize",
        "ttnn.untilize_with_unpadding",
        "ttnn.view",
    }
)

# Parameters that an op writes to but does not return.
WRITTEN: Mapping[str, frozenset[str]] = {
    "ttnn.batch_norm": frozenset({"running_mean", "running_var"}),
    "ttnn.moreh_clip_grad_norm": frozenset({"inputs"}),
    "ttnn.moreh_nll_loss": frozenset({"divisor_tensor"}),
}

# Ops that write to these parameters with training=True and only read them otherwise.
ONLY_IN_TRAINING = frozenset({"ttnn.batch_norm"})

# Parameters that every op which has them writes to. Most such ops return what they wrote, but not
# always in the caller's form, and never the parts that only served in between.
CACHES = frozenset({"cache", "cache_tensor", "cache_tensor1", "cache_tensor2"})
SCRATCH = frozenset({"buffer_tensor", "exchange_buffer", "forwarding_buffer"})
SCRATCH_PREFIXES = ("persistent_", "intermediate_")

# What such an op also reads; all else that it writes to has no part in its result.
READ_TOO = CACHES | {"inputs"}


def written(name: str, parameters: frozenset[str]) -> frozenset[str]:
    """Return those of an op's parameters that it may write to without returning them."""
    scratch = {parameter for parameter in parameters if parameter.startswith(SCRATCH_PREFIXES)}
    return parameters & (WRITTEN.get(name, frozenset()) | CACHES | SCRATCH | scratch)


Line = Sequence[Any]
Collective = Callable[[Any, Line, int], list[Any]]


def all_gather(torch: Any, line: Line, dim: int) -> list[Any]:
    """Give every chip of the line the parts of all, joined along ``dim``."""
    return [torch.cat(list(line), dim)] * len(line)


def all_reduce(_torch: Any, line: Line, _dim: int) -> list[Any]:
    """Give every chip of the line the sum of all parts."""
    return [sum(line[1:], line[0])] * len(line)


def reduce_scatter(torch: Any, line: Line, dim: int) -> list[Any]:
    """Give every chip of the line its part of the sum, split along ``dim``."""
    return list(torch.chunk(sum(line[1:], line[0]), len(line), dim))


def mesh_partition(torch: Any, line: Line, dim: int) -> list[Any]:
    """Leave every chip of the line its own part of what it has, split along ``dim``."""
    return [torch.chunk(part, len(line), dim)[place] for place, part in enumerate(line)]


COLLECTIVES: Mapping[str, Collective] = {
    "ttnn.all_gather": all_gather,
    "ttnn.all_reduce": all_reduce,
    "ttnn.reduce_scatter": reduce_scatter,
    "ttnn.mesh_partition": mesh_partition,
    "ttnn.experimental.all_gather_async": all_gather,
    "ttnn.experimental.reduce_scatter_minimal_async": reduce_scatter,
}

WITHOUT_DIM = frozenset({"ttnn.all_reduce"})

# Only ops whose result depends on other chips, or on their chip's place among them, have these.
PARAMETERS = frozenset({"cluster_axis", "topology", "multi_device_global_semaphore"})


def talks_between_chips(operation: Any, parameters: Collection[str]) -> bool:
    """Tell whether an op with these parameters reads other chips than its own."""
    name = operation.python_fully_qualified_name
    home = getattr(operation.golden_function, "__module__", "")
    return (
        name in COLLECTIVES
        or home == "ttnn.operations.ccl"
        or "ring_" in name
        or not PARAMETERS.isdisjoint(parameters)
    )


def dimension(name: str, bound: Mapping[str, Any]) -> int | None:
    """Return the tensor dimension of a collective call, or None where it cannot be told."""
    if name in WITHOUT_DIM:
        return 0
    asked = bound.get("dim")
    return asked if type(asked) is int else None


def lines(shape: Sequence[int], axis: int | None) -> list[list[int]]:
    """Return the chips, numbered row by row, that talk to each other along a mesh axis."""
    count = math.prod(shape)
    if axis is None:
        return [list(range(count))]
    step = math.prod(shape[axis + 1 :])
    starts = [chip for chip in range(count) if chip // step % shape[axis] == 0]
    return [[start + step * place for place in range(shape[axis])] for start in starts]


def apply(
    torch: Any, collective: Collective, parts: Line, groups: list[list[int]], dim: int
) -> list[Any]:
    """Return what each chip holds after the collective ran on every line of chips."""
    results: list[Any] = [None] * len(parts)
    for group in groups:
        answers = collective(torch, [parts[chip] for chip in group], dim)
        for chip, answer in zip(group, answers, strict=True):
            results[chip] = answer
    return results


@dataclass(frozen=True, slots=True)
class PerChip:
    """The torch result of a collective for each chip of the mesh."""

    parts: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class WithWeights:
    """The golden calls of an op that lays its weights out, and what those will keep."""

    calls: list[Prepared] | Missing
    weights: tuple[Numbers, ...]


Preparation: TypeAlias = "list[Prepared] | PerChip | WithWeights | Missing"


class Expecting:
    """What calls of one loaded ttnn should compute from the numbers that twins hold."""

    def __init__(
        self,
        torch: Any,
        twins: Twins,
        golden: Golden,
        signatures: Signatures,
        arrangements: Arrangements,
    ) -> None:
        self._torch = torch
        self._twins = twins
        self._golden = golden
        self._signatures = signatures
        self._arrangements = arrangements

    def prepare(
        self, operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Preparation:
        """Return what the op will compute, or why that is not known; never raise.

        Whatever is wrong with the arguments is for ttnn to say, which sees them next.
        """
        name = operation.python_fully_qualified_name
        if name in UNWRITTEN:
            return Missing(name, "it allocates memory and nothing has written to it since")
        try:
            inputs = self._golden.tensors((arguments, keywords))
            several = any(self._twins.chips(tensor) > 1 for tensor in inputs)
            parameters = self._signatures.parameters(operation) if several else ()
            if several and talks_between_chips(operation, parameters):
                return self._collective(name, self._signatures.bind(operation, arguments, keywords))
            unread = self.written(operation, arguments, keywords).keys() - READ_TOO
            if name in LAYING_OUT:
                return self._with_weights(operation, arguments, keywords)
            return self._golden.prepare(operation, arguments, keywords, unread)
        except Exception as error:  # noqa: BLE001 - ttnn judges the arguments; it is counted
            return Missing(name, f"torch cannot compute it from its inputs: {first_line(error)}")

    def written(
        self, operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the arguments that this call writes to without returning them, by name."""
        name = operation.python_fully_qualified_name
        candidates = written(name, self._signatures.parameters(operation))
        if not candidates:
            return {}
        bound = self._signatures.bind(operation, arguments, keywords)
        if name in ONLY_IN_TRAINING and not bound.get("training", False):
            return {}
        return {parameter: bound[parameter] for parameter in candidates & bound.keys()}

    def answers(
        self, operation: Any, prepared: Preparation, result: Any
    ) -> list[tuple[Any, list[Any] | Missing]]:
        """Return each tensor of the result with a torch tensor per chip, or one for all."""
        if isinstance(prepared, PerChip):
            return [(tensor, [*prepared.parts]) for tensor in self._golden.tensors(result)]
        if not isinstance(prepared, WithWeights):
            return self._golden.answers(operation, prepared, result)
        name = operation.python_fully_qualified_name
        found = self._golden.answers(operation, prepared.calls, result)
        return [*found[:1], *((tensor, Missing(name, LAID_OUT)) for tensor, _ in found[1:])]

    def numbers(
        self, operation: Any, prepared: Preparation, result: Any
    ) -> list[tuple[Any, Numbers]]:
        """Return each tensor of the result with the numbers that it has."""
        name = operation.python_fully_qualified_name
        noted = [
            (
                tensor,
                found if isinstance(found, Missing) else self._golden.twin(name, tensor, found),
            )
            for tensor, found in self.answers(operation, prepared, result)
        ]
        if isinstance(prepared, WithWeights):
            kept = zip(noted[1:], prepared.weights, strict=False)
            noted[1:] = [(tensor, numbers) for (tensor, _), numbers in kept]
        return noted

    def _with_weights(
        self, operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> WithWeights:
        """Return the golden calls with plain weights in place of those that were laid out."""
        name = operation.python_fully_qualified_name
        bound = self._signatures.bind(operation, arguments, keywords)
        weights = self._arrangements.weights(name, bound)
        plain = {
            id(bound[argument]): self._arrangements.joined(numbers)
            for argument, numbers in weights.items()
            if isinstance(numbers, Twin)
        }
        arguments = tuple(plain.get(id(value), value) for value in arguments)
        keywords = {key: plain.get(id(value), value) for key, value in keywords.items()}
        calls = self._golden.prepare(operation, arguments, keywords)
        return WithWeights(calls, tuple(laid_out(name, each) for each in weights.values()))

    def _collective(self, name: str, bound: dict[str, Any]) -> PerChip | Missing:
        """Return what a collective gives each chip, or why that is not known."""
        collective = COLLECTIVES.get(name)
        dim = dimension(name, bound)
        tensor = bound.get("input_tensor")
        if collective is None or dim is None or tensor is None:
            return Missing(name, "it talks between chips in a way that is not known here")
        numbers = self._twins.numbers(tensor)
        if isinstance(numbers, Missing):
            return inherited(name, numbers)
        shape = tuple(tensor.device().shape)
        groups = lines(shape, bound.get("cluster_axis"))
        if sum(map(len, groups)) != len(numbers.shards):
            return Missing(name, f"its input is on part of a mesh of {shape} only")
        parts = [self._golden.unpack(shard) for shard in numbers.shards]
        return PerChip(tuple(apply(self._torch, collective, parts, groups, dim)))
