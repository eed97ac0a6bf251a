"""Compute with torch what an op would have computed, by its golden function.

The golden function sees float32 copies of narrow floats, so that its result is rounded once, to
the dtype of the output, by ttnn's own host packing or exactly as that does it. Chips of a mesh are
computed one by one, and chips with the same inputs once. Nothing is guessed: a golden function that
raises, or that gives another shape than ttnn does, leaves the output without numbers.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.ttnn.shadow.golden_overrides import statement
from optrove.frameworks.ttnn.shadow.host_mirrors import Missing, Numbers, Twin, Twins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from optrove.frameworks.ttnn.signatures import Overload, Signatures


_BY_PLACE: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def by_place(
    function: Any,
    overloads: Iterable[Overload],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of an op as its golden function can be called with them.

    ``ttnn.repeat(x, repeat_dims=...)`` has a golden function of ``(x, shape)``. A keyword goes by
    place only if the op takes it at that place, the golden function does not know its name, and
    needs something there.
    """
    parameters = _parameters(function)
    if parameters is None or not _lacks_something(parameters, arguments, keywords):
        return arguments, keywords
    places = [each for each in parameters.values() if each.kind in _BY_PLACE]
    for overload in overloads:
        placed, rest = list(arguments), dict(keywords)
        for name in overload.positional[len(arguments) :]:
            if name not in rest or name in parameters or len(placed) >= len(places):
                break
            if places[len(placed)].default is not inspect.Parameter.empty:
                break
            placed.append(rest.pop(name))
        if not _lacks_something(parameters, tuple(placed), rest):
            return tuple(placed), rest
    return arguments, keywords


@lru_cache(maxsize=4096)  # more than ttnn has ops: asking takes longer than many a golden function
def _parameters(function: Any) -> Mapping[str, inspect.Parameter] | None:
    """Return the parameters of a function, None if it does not tell."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return None


def _lacks_something(parameters: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Tell whether a required parameter that can be passed by place is not given."""
    places = [each for each in parameters.values() if each.kind in _BY_PLACE]
    return any(
        each.default is inspect.Parameter.empty and each.name not in keywords
        for each in places[len(arguments) :]
    )


# The names under which ops take a tensor to write into, where ttnn has no list of its own.
OUTPUT_ARGUMENTS = (
    "output_tensor",
    "optional_tensor",
    "optional_output_tensor",
    "out",
    "output",
    "output_tensors",
    "optional_output_tensors",
)

# Its numbers are not torch's: ttnn's preprocessing has a way of its own to read them.
EIGHT_BITS = "FP8_E4M3"

# Their meaning is in the bits of the narrow dtype.
NOT_WIDENED = frozenset({"ttnn.bitcast"})


@dataclass(frozen=True, slots=True)
class Prepared:
    """The torch arguments of one golden call, made before the op could change its inputs."""

    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]


class Golden:
    """Prepare and evaluate golden functions of one loaded ttnn."""

    def __init__(self, ttnn: Any, torch: Any, twins: Twins, signatures: Signatures) -> None:
        self._ttnn = ttnn
        self._torch = torch
        self._twins = twins
        self._signatures = signatures
        # The plain functions, so that packing a twin is not itself an observed op call.
        self._from_torch: Callable[..., Any] = ttnn.from_torch.function

    def tensors(self, live: Any) -> Iterator[Any]:
        """Yield the ttnn tensors in nested lists, tuples and dictionaries."""
        if isinstance(live, self._ttnn.Tensor):
            yield live
        elif isinstance(live, (list, tuple)):
            for item in live:
                yield from self.tensors(item)
        elif isinstance(live, dict):
            yield from self.tensors(list(live.values()))

    def prepare(
        self,
        operation: Any,
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
        unread: Iterable[str] = (),
    ) -> list[Prepared] | Missing:
        """Return the golden calls to make, one per chip, or why none can be made.

        ``unread`` names keywords, besides output tensors, that have no part in the result.
        """
        name = operation.python_fully_qualified_name
        if _function(operation) is None:
            return Missing(name, "it has no golden function")
        outputs = getattr(operation, "output_tensor_kwarg_names", OUTPUT_ARGUMENTS)
        keywords = self._blanked(keywords, (*outputs, *unread))
        inputs = list(self.tensors((arguments, keywords)))
        for tensor in inputs:
            numbers = self._twins.numbers(tensor)
            if isinstance(numbers, Missing):
                return inherited(name, numbers)
        chips = max((self._twins.chips(tensor) for tensor in inputs), default=1)
        try:
            arguments, keywords = by_place(
                _function(operation), self._signatures.of(operation), arguments, keywords
            )
            if chips == 1 and not self._only_reads(operation):
                return [self._torch_arguments(operation, arguments, keywords)]
            return self._per_chip(operation, arguments, keywords, chips)
        except Exception as error:  # noqa: BLE001 - ttnn's code on foreign arguments; it is counted
            return Missing(name, f"its golden function refused the arguments: {first_line(error)}")

    def answers(
        self, operation: Any, calls: list[Prepared] | Missing, result: Any
    ) -> list[tuple[Any, list[Any] | Missing]]:
        """Return what the golden function gives for each tensor in ``result``, chip by chip."""
        outputs = list(self.tensors(result))
        if isinstance(calls, Missing):
            return [(tensor, calls) for tensor in outputs]
        name = operation.python_fully_qualified_name
        done: dict[int, Any] = {}
        try:
            for call in calls:
                if id(call) not in done:
                    done[id(call)] = self._run(operation, call)
        except Exception as error:  # noqa: BLE001 - any golden may raise anything; it is counted
            missing = Missing(name, f"its golden function raised {first_line(error)}")
            return [(tensor, missing) for tensor in outputs]
        answers = [done[id(call)] for call in calls]
        return [
            (tensor, [_pick(answer, result, path) for answer in answers])
            for path, tensor in _leaves(result, self._ttnn.Tensor)
        ]

    def pack(self, numbers: Any, like: Any) -> Any:
        """Return a host tensor with ``numbers``, rounded to the dtype of the tensor ``like``."""
        ttnn, torch = self._ttnn, self._torch
        wanted = torch_dtype(ttnn, torch, like.dtype)
        if numbers.dtype != wanted:
            numbers = numbers.to(wanted)
        if like.dtype == ttnn.bfloat16:
            # Bit for bit what ttnn's packing gives of numbers, in a fraction of the time.
            numbers = numbers.to(torch.bfloat16)
        layout = self.layout(like)
        tile = like.tile if layout == ttnn.TILE_LAYOUT else None
        return self._from_torch(
            numbers.detach().contiguous(), dtype=like.dtype, layout=layout, tile=tile
        )

    def layout(self, like: Any) -> Any:
        """Return the layout in which numbers are kept for the tensor ``like``.

        Only formats that share exponents need tiles; all others are quicker to read without.
        """
        ttnn = self._ttnn
        shared = like.dtype in (ttnn.bfloat8_b, ttnn.bfloat4_b)
        return ttnn.TILE_LAYOUT if shared else ttnn.ROW_MAJOR_LAYOUT

    def pack_as(self, shard: Any, spec: Any) -> Any:
        """Return a host tensor with the numbers of another one and the given spec."""
        return self._from_torch(shard.to_torch().contiguous(), spec=spec)

    def unpack(self, shard: Any) -> Any:
        """Return a torch copy of a host tensor, narrow floats widened."""
        return self._widen(shard.to_torch())

    def twin(self, name: str, tensor: Any, answers: list[Any]) -> Numbers:
        """Return the numbers of ``tensor`` from a torch tensor per chip, or one for all."""
        chips = self._twins.chips(tensor)
        shards: dict[int, Any] = {}
        for answer in answers:
            fault = self.fault(answer, tensor)
            if fault:
                return Missing(name, fault)
            if id(answer) in shards:
                continue
            try:
                shards[id(answer)] = self.pack(answer, tensor)
            except Exception as error:  # noqa: BLE001 - a golden may give anything; it is counted
                return Missing(name, f"its result could not be packed: {first_line(error)}")
        packed = [shards[id(answer)] for answer in answers]
        if len(packed) == 1:
            packed *= chips
        if len(packed) != chips:
            return Missing(name, f"{len(packed)} results for a tensor on {chips} chips")
        return Twin(tuple(packed))

    def _blanked(self, keywords: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
        """Replace tensors that nobody reads by blank host tensors of their form."""
        targets = {name: keywords[name] for name in names if keywords.get(name) is not None}
        return keywords | {name: self._blank(target) for name, target in targets.items()}

    def _blank(self, target: Any) -> Any:
        if isinstance(target, (list, tuple)):
            return type(target)(self._blank(item) for item in target)
        if not isinstance(target, self._ttnn.Tensor):
            return target
        return self.pack(self._torch.zeros(tuple(target.shape)), target)

    def _per_chip(
        self, operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], chips: int
    ) -> list[Prepared]:
        known: dict[tuple[int, ...], Prepared] = {}
        read: dict[int, Any] = {}
        only_reads = self._only_reads(operation)
        tensors = list(self.tensors((arguments, keywords)))
        calls = []
        for chip in range(chips):
            # Not by id(): the shards of a host tensor are new objects whenever they are asked for.
            key = tuple([self._on_chip(tensor, chip).tensor_id for tensor in tensors])
            if key not in known:
                # Host shards stand in for the device's: a shard on the device still claims the
                # topology of the whole mesh, which ttnn's preprocessing would then try to compose.
                here = self._on_chip((arguments, keywords), chip)
                # That is done once for all chips that share a tensor.
                here = self._read(here, read) if only_reads else here
                known[key] = self._torch_arguments(operation, *here)
            calls.append(known[key])
        return calls

    def _only_reads(self, operation: Any) -> bool:
        """Tell whether ttnn makes torch arguments of an op by reading its tensors, no more."""
        default = self._ttnn.decorators.default_preprocess_golden_function_inputs
        return operation.preprocess_golden_function_inputs in (None, default)

    def _read(self, live: Any, read: dict[int, Any]) -> Any:
        """Return nested arguments with torch tensors in place of host tensors."""
        if isinstance(live, self._ttnn.Tensor):
            number = live.tensor_id
            if number not in read:
                read[number] = self._readable(live)
            return read[number]
        if isinstance(live, dict):
            return {key: self._read(value, read) for key, value in live.items()}
        if type(live) in (list, tuple):
            return type(live)(self._read(item, read) for item in live)
        return live

    def _readable(self, shard: Any) -> Any:
        if shard.dtype.name == EIGHT_BITS:
            return self._ttnn.decorators.to_torch_for_comparison(shard)
        return shard.to_torch()

    def _on_chip(self, live: Any, chip: int) -> Any:
        if isinstance(live, self._ttnn.Tensor):
            numbers = self._twins.numbers(live)
            if isinstance(numbers, Missing):
                raise TypeError(f"no numbers: {numbers}")
            return numbers.shards[chip if len(numbers.shards) > 1 else 0]
        if isinstance(live, dict):
            return {key: self._on_chip(value, chip) for key, value in live.items()}
        if type(live) in (list, tuple):
            return type(live)(self._on_chip(item, chip) for item in live)
        return live

    def _torch_arguments(
        self, operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> Prepared:
        decorators = self._ttnn.decorators
        name = operation.python_fully_qualified_name
        preprocess = (
            operation.preprocess_golden_function_inputs
            or decorators.default_preprocess_golden_function_inputs
        )
        values = preprocess(arguments, keywords)
        if name not in NOT_WIDENED:
            values = self._widen(values)
        if name.endswith("_bw") and hasattr(decorators, "prepare_backward_golden_inputs"):
            values = decorators.prepare_backward_golden_inputs(values)
        return Prepared(tuple(values[0]), values[1])

    def _widen(self, value: Any) -> Any:
        """Return copies of the torch tensors inside ``value``, narrow floats as float32."""
        torch = self._torch
        if isinstance(value, torch.Tensor):
            narrow = value.dtype in (torch.bfloat16, torch.float16)
            return value.to(torch.float32) if narrow else value.clone()
        if type(value) in (list, tuple):
            return type(value)(self._widen(item) for item in value)
        if type(value) is dict:
            return {key: self._widen(item) for key, item in value.items()}
        return value

    def _run(self, operation: Any, call: Prepared) -> Any:
        function = _function(operation)
        assert function is not None  # noqa: S101 - narrows the type; prepare has looked
        if operation.python_fully_qualified_name.endswith("_bw"):
            return function(*call.arguments, **call.keywords)
        with self._torch.no_grad():
            return function(*call.arguments, **call.keywords)

    def fault(self, answer: Any, tensor: Any) -> str | None:
        """Return why an answer cannot be the numbers of a tensor, None if it can."""
        if not isinstance(answer, self._torch.Tensor):
            return f"its golden function gave {type(answer).__name__} for a tensor"
        if tuple(answer.shape) != tuple(tensor.shape):
            return (
                f"its golden function gave the shape {tuple(answer.shape)}, "
                f"ttnn the shape {tuple(tensor.shape)}"
            )
        return None


def inherited(name: str, cause: Missing) -> Missing:
    """Return that ``name`` had an input without numbers, naming the first op that caused it."""
    root = cause.reason if cause.reason.startswith(INHERITED) else f"{INHERITED} since {cause}"
    return Missing(name, root)


INHERITED = "an input has no numbers"


def _function(operation: Any) -> Callable[..., Any] | None:
    """Return what is stated of the op here, else its own golden function, if ttnn gives one."""
    return statement(operation.python_fully_qualified_name) or operation.golden_function


def _leaves(live: Any, kind: type, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """Yield each tensor in a nested result with the way to it."""
    if isinstance(live, kind):
        yield path, live
    elif isinstance(live, (list, tuple)):
        for index, item in enumerate(live):
            yield from _leaves(item, kind, (*path, index))
    elif isinstance(live, dict):
        for key, item in live.items():
            yield from _leaves(item, kind, (*path, key))


def _pick(answer: Any, result: Any, path: tuple[Any, ...]) -> Any:
    """Return the part of a golden answer that belongs to one tensor of the result."""
    if not path and isinstance(answer, (list, tuple)) and len(answer) == 1:
        return answer[0]  # backward goldens give a list of one for a single tensor
    if path == (0,) and isinstance(answer, (list, tuple)) and len(answer) == 1:
        return answer[0]  # goldens of convolutions leave out sizes and weights
    for step in path:
        same = isinstance(answer, (list, tuple, dict)) and len(answer) == len(result)
        if not same:
            return None
        answer, result = answer[step], result[step]
    return answer


def torch_dtype(ttnn: Any, torch: Any, dtype: Any) -> Any:
    """Return the dtype that host packing takes for an exact, single rounding to ``dtype``."""
    integers = {
        ttnn.uint8: torch.uint8,
        ttnn.uint16: torch.uint16,
        ttnn.int32: torch.int32,
        ttnn.uint32: torch.uint32,
    }
    return integers.get(dtype, torch.float32)


def first_line(error: Exception) -> str:
    """Return an error as one line of text."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"[:300]
