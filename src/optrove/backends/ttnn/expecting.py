"""Find out what a call of ttnn should compute, in torch, before and after it is made.

``prepare`` comes before the call, which may overwrite or free its inputs. Nothing is guessed:
where it is not known what comes out, there is a ``Missing`` with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from optrove.backends.ttnn import collectives
from optrove.backends.ttnn.arrangements import LAYING_OUT, laid_out
from optrove.backends.ttnn.arrangements import REASON as LAID_OUT
from optrove.backends.ttnn.effects import ONLY_IN_TRAINING, READ_TOO, UNWRITTEN, written
from optrove.backends.ttnn.golden import Prepared, first_line, inherited
from optrove.backends.ttnn.twins import Missing, Twin

if TYPE_CHECKING:
    from optrove.backends.ttnn.arguments import Signatures
    from optrove.backends.ttnn.arrangements import Arrangements
    from optrove.backends.ttnn.golden import Golden
    from optrove.backends.ttnn.twins import Numbers, Twins


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
            if several and collectives.talks_between_chips(operation, parameters):
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
        collective = collectives.COLLECTIVES.get(name)
        dim = collectives.dimension(name, bound)
        tensor = bound.get("input_tensor")
        if collective is None or dim is None or tensor is None:
            return Missing(name, "it talks between chips in a way that is not known here")
        numbers = self._twins.numbers(tensor)
        if isinstance(numbers, Missing):
            return inherited(name, numbers)
        shape = tuple(tensor.device().shape)
        groups = collectives.lines(shape, bound.get("cluster_axis"))
        if sum(map(len, groups)) != len(numbers.shards):
            return Missing(name, f"its input is on part of a mesh of {shape} only")
        parts = [self._golden.unpack(shard) for shard in numbers.shards]
        return PerChip(tuple(collectives.apply(self._torch, collective, parts, groups, dim)))
