"""Compute with torch what an op would have computed, by its golden function.

The golden function gets float32 copies of narrow floats (but for ops with ``keeps_narrow``), so
that its result is rounded once, to the dtype of the output, by ttnn's own host packing or just as
that does it. Chips of a mesh are computed one by one, chips with the same inputs once. Nothing is
guessed: if a golden function raises, or returns another shape than ttnn, the output has no values.
"""

from __future__ import annotations

import inspect
import math
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial, wraps
from itertools import dropwhile
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.argument_names import signature_of
from optrove.frameworks.ttnn.board.mock_calls import CHIPS
from optrove.frameworks.ttnn.ops import WITHOUT_NUMBERS, op_of
from optrove.frameworks.ttnn.shadow.golden_overrides import (
    PLACEMENT,
    GoldenOverride,
    with_own_activations,
)
from optrove.frameworks.ttnn.shadow.host_mirrors import (
    HostMirror,
    HostMirrors,
    MirrorOrMissing,
    Missing,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from optrove.frameworks.ttnn.shadow.hardware import CallFacts, HardwareNumerics
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


@lru_cache(maxsize=4096)  # more than ttnn has ops: it takes longer than many golden functions
def _parameters(function: Any) -> Mapping[str, inspect.Parameter] | None:
    """Return the parameters of a function; None if it has no signature."""
    signature = signature_of(function)
    return None if signature is None else signature.parameters


def _lacks_something(parameters: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Return whether a required parameter that can be passed by place is missing."""
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

SEED: Final = "seed"

# Ops under this name have the arguments and the results of those without it.
QUASAR: Final = "ttnn.experimental.quasar."

# torch has no such format: ttnn's preprocessing has its own way to read it.
EIGHT_BITS = "FP8_E4M3"


@lru_cache(maxsize=1024)
def golden_override(name: str) -> GoldenOverride | None:
    """Return the function that computes the op ``name`` in torch; None for an op without one."""
    override = op_of(name).golden
    if override is None:
        return None

    def compute(*arguments: Any, is_idle: bool = False, **keywords: Any) -> Any:
        if is_idle:
            kept = tuple(
                arguments[place] if place < len(arguments) else keywords[parameter]
                for place, parameter in op_of(name).idle
            )
            return kept if len(kept) > 1 else kept[0]
        relevant = {
            key: value
            for key, value in keywords.items()
            if value is not None and (key not in PLACEMENT or key in named)
        }
        return override(*arguments, **relevant)

    named = inspect.signature(override).parameters
    return compute


def golden_adapter(
    name: str, golden_of: Callable[[str], GoldenOverride | None]
) -> GoldenOverride | None:
    """Return the golden function of an op with its arguments adapted; None for an op without one.

    ``golden_of`` returns the golden function that ttnn has for an op.
    """
    found = op_of(name).adapter
    if found is None or golden_of(found.golden) is None:
        return None

    @wraps(found.adapt)
    def compute(*arguments: Any, **keywords: Any) -> Any:
        golden = golden_of(found.golden)  # not before, since a program may attach another one
        if golden is None:
            raise ValueError(f"{found.golden} has no golden function")
        adapted = found.adapt(*arguments, **keywords)
        return found.finish(golden(*adapted.arguments, **adapted.keywords), keywords)

    return compute


def ignored_argument(name: str, keywords: Mapping[str, Any]) -> str | None:
    """Return an argument of a call that changes the result and that ttnn's golden ignores."""
    return next(
        (key for key in op_of(name).ignored if keywords.get(key) not in (None, [], (), 0)), None
    )


def call_facts(name: str, tensor: Any) -> dict[str, Any]:
    """Return the facts of the first tensor of a call that an override needs."""
    if not tensor.is_sharded():
        return {}
    if op_of(name).needs_shard_width:
        return {"shard_width": tensor.memory_config().shard_spec.shape[1]}
    return {"is_sharded": True} if op_of(name).needs_sharding else {}


@dataclass(frozen=True, slots=True)
class GoldenCall:
    """The torch arguments of one golden call, read before the op could change its inputs.

    They are widened when the call is made, so that one chip at a time has wide copies.
    """

    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    facts: CallFacts | None = None


class GoldenFunctions:
    """Prepare and evaluate golden functions of one loaded ttnn.

    With ``hardware``, calls that it knows are computed as the hardware does.
    """

    def __init__(
        self,
        ttnn: Any,
        torch: Any,
        mirrors: HostMirrors,
        signatures: Signatures,
        hardware: HardwareNumerics | None = None,
    ) -> None:
        self.hardware = hardware
        self._ttnn = ttnn
        self._torch = torch
        self._mirrors = mirrors
        self._signatures = signatures
        # The plain function, so that packing a mirror is not itself an observed op call.
        self._from_torch: Callable[..., Any] = ttnn.from_torch.function
        self._functions: dict[str, Callable[..., Any]] = {}
        self._seeds = Random(0)  # noqa: S311 - for numbers, not for secrets

    def function(self, operation: Any) -> Callable[..., Any] | None:
        """Return the function that computes an op in torch; None without one."""
        name = operation.python_fully_qualified_name
        if name not in self._functions:
            found = golden_override(name) or golden_adapter(name, self._golden_of)
            if found is None:
                return operation.golden_function  # type: ignore[no-any-return]
            self._functions[name] = found
        return self._functions[name]

    def plain(self, operation: Any) -> Any:
        """Return the op that computes the same as one that is written anew for other hardware.

        Methods of tensors are no operations (None), and stay what they are.
        """
        name = getattr(operation, "python_fully_qualified_name", "")
        if not name.startswith(QUASAR):
            return operation
        path = name.removeprefix(QUASAR)
        for home in (self._ttnn, self._ttnn.experimental):
            with suppress(AttributeError):
                return attrgetter(path)(home)
        return operation

    def _golden_of(self, name: str) -> Callable[..., Any] | None:
        operation = self._ttnn
        for part in name.split(".")[1:]:
            operation = getattr(operation, part)
        return operation.golden_function  # type: ignore[no-any-return]

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
    ) -> list[GoldenCall] | Missing:
        """Return the golden calls to make, one per chip, or why none can be made.

        ``unread`` are keywords, besides output tensors, that do not affect the result.
        """
        name = operation.python_fully_qualified_name
        function = self.function(operation)
        if function is None:
            return Missing(name, f"it has no golden function{lacking(name)}")
        ignored = ignored_argument(name, keywords)
        if ignored is not None:
            return Missing(name, f"its golden function ignores the argument {ignored}")
        outputs = getattr(operation, "output_tensor_kwarg_names", OUTPUT_ARGUMENTS)
        blank = {*outputs, *unread}
        keywords = self._blanked(keywords, blank)
        arguments = self._blanked_by_place(operation, arguments, blank)
        inputs = list(self.tensors((arguments, keywords)))
        for tensor in inputs:
            mirror = self._mirrors.of(tensor)
            if isinstance(mirror, Missing):
                return inherited(name, mirror)
        chips = max((self._mirrors.chips(tensor) for tensor in inputs), default=1)
        try:
            arguments, keywords = by_place(
                function, self._signatures.of(operation), arguments, keywords
            )
            if inputs:
                keywords |= call_facts(name, inputs[0])
            several = chips > 1 or self._only_reads(operation)
            if several or (keywords.get(CHIPS) is not None and op_of(name).idle):
                calls = self._per_chip(operation, arguments, keywords, chips)
            else:
                calls = [self._torch_arguments(operation, arguments, keywords)]
            return self._with_facts(calls, inputs, keywords)
        except Exception as error:  # noqa: BLE001 - ttnn's code on foreign arguments; it is counted
            return Missing(name, f"its golden function refused the arguments: {first_line(error)}")

    def _with_facts(
        self, calls: list[GoldenCall], inputs: list[Any], keywords: Mapping[str, Any]
    ) -> list[GoldenCall]:
        """Add to the calls what the hardware's arithmetic depends on; shared calls stay shared."""
        if self.hardware is None:
            return calls
        devices = [self._mirrors.device(tensor) for tensor in inputs]
        facts = self.hardware.facts(inputs, devices, keywords)
        known = {id(call): replace(call, facts=facts) for call in calls}
        return [known[id(call)] for call in calls]

    def answers(
        self, operation: Any, calls: list[GoldenCall] | Missing, result: Any
    ) -> list[tuple[Any, list[Any] | Missing]]:
        """Return the golden function's answer for each tensor in ``result``, chip by chip."""
        outputs = list(self.tensors(result))
        if isinstance(calls, Missing):
            return [(tensor, calls) for tensor in outputs]
        name = operation.python_fully_qualified_name
        done: dict[int, Any] = {}
        try:
            for call in calls:
                if id(call) not in done:
                    done[id(call)] = self._run(operation, call, outputs)
        except Exception as error:  # noqa: BLE001 - any golden may raise anything; it is counted
            missing = Missing(name, f"its golden function raised {first_line(error)}")
            return [(tensor, missing) for tensor in outputs]
        answers = [done[id(call)] for call in calls]
        return [
            (tensor, [_part(name, answer, result, path, tensor) for answer in answers])
            for path, tensor in _leaves(result, self._ttnn.Tensor)
        ]

    def mirrors(
        self, operation: Any, calls: list[GoldenCall] | Missing, result: Any
    ) -> list[tuple[Any, MirrorOrMissing]]:
        """Return the mirror of each tensor in ``result``; one chip at a time is computed."""
        if isinstance(calls, Missing):
            return [(tensor, calls) for tensor in self.tensors(result)]
        name = operation.python_fully_qualified_name
        leaves = list(_leaves(result, self._ttnn.Tensor))
        done: dict[int, list[Any]] = {}
        for call in calls:
            if id(call) in done:
                continue
            try:
                answer = self._run(operation, call, [tensor for _, tensor in leaves])
            except Exception as error:  # noqa: BLE001 - any golden may raise anything; it is counted
                missing = Missing(name, f"its golden function raised {first_line(error)}")
                return [(tensor, missing) for _, tensor in leaves]
            done[id(call)] = [
                self._shard_of(name, tensor, _part(name, answer, result, path, tensor))
                for path, tensor in leaves
            ]
            del answer
        shards = [done[id(call)] for call in calls]
        return [
            (tensor, self._mirror_of(name, tensor, [each[place] for each in shards]))
            for place, (_, tensor) in enumerate(leaves)
        ]

    def pack(self, values: Any, like: Any) -> Any:
        """Return a host tensor of a torch tensor, rounded to the dtype of the tensor ``like``."""
        ttnn, torch = self._ttnn, self._torch
        wanted = torch_dtype(ttnn, torch, like.dtype)
        if values.dtype != wanted:
            values = values.to(wanted)
        if like.dtype == ttnn.bfloat16:
            # Bit for bit the result of ttnn's packing, in a fraction of the time.
            values = values.to(torch.bfloat16)
        layout = self.layout(like)
        tile = like.tile if layout == ttnn.TILE_LAYOUT else None
        return self._from_torch(
            values.detach().contiguous(), dtype=like.dtype, layout=layout, tile=tile
        )

    def owned(self, source: Any, like: Any) -> Any:
        """Return a torch tensor that its caller cannot change while a host tensor borrows it.

        ``like`` has the dtype of the host tensor. Anything but a torch tensor stays as it is.
        """
        torch = self._torch
        if not isinstance(source, torch.Tensor):
            return source
        if like.dtype == self._ttnn.bfloat16 and source.dtype == torch.float32:
            return source.to(torch.bfloat16)  # as ttnn rounds, in a fraction of the time
        return source.clone() if self.layout(like) == self._ttnn.ROW_MAJOR_LAYOUT else source

    def layout(self, like: Any) -> Any:
        """Return the layout of the mirror of the tensor ``like``."""
        return mirror_layout(self._ttnn, like.dtype)

    def pack_as(self, shard: Any, spec: Any) -> Any:
        """Return a host tensor with the values of another one and the given spec."""
        return self._from_torch(shard.to_torch().contiguous(), spec=spec)

    def on_chips(self, count: int, live: Any) -> list[Any]:
        """Return nested arguments for each chip, with torch tensors; equal shards are one."""
        known: dict[int, Any] = {}

        def value(chip: int, leaf: Any) -> Any:
            if not isinstance(leaf, self._ttnn.Tensor):
                return leaf
            shard = self._shard(chip, leaf)
            if shard.tensor_id not in known:
                known[shard.tensor_id] = self.unpack(shard)
            return known[shard.tensor_id]

        return [mapped(partial(value, chip), live) for chip in range(count)]

    def unpack(self, shard: Any) -> Any:
        """Return a torch copy of a host tensor, narrow floats widened."""
        return self._widen(shard.to_torch())

    def mirror(self, name: str, tensor: Any, answers: list[Any]) -> MirrorOrMissing:
        """Return the mirror of ``tensor`` from a torch tensor per chip, or one for all."""
        shards: dict[int, Any] = {}
        for answer in answers:
            if id(answer) not in shards:
                shards[id(answer)] = self._shard_of(name, tensor, answer)
        return self._mirror_of(name, tensor, [shards[id(answer)] for answer in answers])

    def _shard_of(self, name: str, tensor: Any, answer: Any) -> Any:
        """Return the host tensor of an answer in the format of ``tensor``, or Missing."""
        fault = self.fault(answer, tensor)
        if fault:
            return Missing(name, fault)
        try:
            return self.pack(answer.reshape(tuple(tensor.shape)), tensor)
        except Exception as error:  # noqa: BLE001 - a golden may give anything; it is counted
            return Missing(name, f"its result could not be packed: {first_line(error)}")

    def _mirror_of(self, name: str, tensor: Any, shards: list[Any]) -> MirrorOrMissing:
        lost = next((shard for shard in shards if isinstance(shard, Missing)), None)
        if lost is not None:
            return lost
        chips = self._mirrors.chips(tensor)
        if len(shards) == 1:
            shards = shards * chips
        if len(shards) != chips:
            return Missing(name, f"{len(shards)} results for a tensor on {chips} chips")
        return HostMirror(tuple(shards))

    def _blanked(self, keywords: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
        """Replace tensors that are not read by blank host tensors of their format."""
        targets = {name: keywords[name] for name in names if keywords.get(name) is not None}
        return {**keywords, **mapped(self._blank, targets)}

    def _blanked_by_place(
        self, operation: Any, arguments: tuple[Any, ...], names: set[str]
    ) -> tuple[Any, ...]:
        """Do the same for arguments without names, if every way to call the op has it there."""
        ways = [
            each.positional
            for each in self._signatures.of(operation)
            if len(each.positional) >= len(arguments)
        ]
        return tuple(
            self._blank(argument)
            if isinstance(argument, self._ttnn.Tensor)
            and ways
            and all(way[place] in names for way in ways)
            else argument
            for place, argument in enumerate(arguments)
        )

    def _blank(self, target: Any) -> Any:
        if not isinstance(target, self._ttnn.Tensor):
            return target
        return self.pack(self._torch.zeros(tuple(target.shape)), target)

    def _per_chip(
        self, operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], chips: int
    ) -> list[GoldenCall]:
        known: dict[tuple[int, ...], GoldenCall] = {}
        keywords = dict(keywords)
        read: dict[int, Any] = {}
        only_reads = self._only_reads(operation)
        is_wide = not op_of(operation.python_fully_qualified_name).keeps_blocks_narrow
        tensors = list(self.tensors((arguments, keywords)))
        device = self._mirrors.device(tensors[0]) if tensors else None
        working = _working_chips(device, keywords.pop(CHIPS, None))
        calls = []
        for chip in range(chips):
            # Not by id(): the shards of a host tensor are new objects whenever they are asked for.
            shard = partial(self._shard, chip)
            is_idle = working is not None and chip not in working
            key = (is_idle, *[shard(tensor).tensor_id for tensor in tensors])
            if key not in known:
                # Host shards replace the device's: a shard on the device still claims the topology
                # of the whole mesh, which ttnn's preprocessing would then try to compose.
                facts = {"is_idle": True} if is_idle else {}
                here = mapped(shard, (arguments, keywords | facts))
                if only_reads:  # once for all chips that share a tensor
                    here = mapped(partial(self._read, read, is_wide), here)
                known[key] = self._torch_arguments(operation, *here)
            calls.append(known[key])
        return calls

    def _only_reads(self, operation: Any) -> bool:
        """Return whether ttnn's preprocessing of an op only reads its tensors."""
        default = self._ttnn.decorators.default_preprocess_golden_function_inputs
        return operation.preprocess_golden_function_inputs in (None, default)

    def _read(self, read: dict[int, Any], is_wide: bool, live: Any) -> Any:  # noqa: FBT001 - bound by partial
        """Return the torch tensor of a host tensor; anything else as it is."""
        ttnn = self._ttnn
        if not isinstance(live, ttnn.Tensor):
            return live
        number = live.tensor_id
        if number not in read:
            if live.dtype.name == EIGHT_BITS:
                read[number] = ttnn.decorators.to_torch_for_comparison(live)
            elif live.dtype in (ttnn.bfloat8_b, ttnn.bfloat4_b):
                dtype = self._torch.float32 if is_wide else self._torch.bfloat16
                read[number] = live.to_torch().to(dtype)
            else:
                read[number] = live.to_torch()
        return read[number]

    def _shard(self, chip: int, live: Any) -> Any:
        """Return the host tensor of one chip of a tensor; anything else as it is."""
        if not isinstance(live, self._ttnn.Tensor):
            return live
        mirror = self._mirrors.of(live)
        if isinstance(mirror, Missing):
            raise TypeError(f"no numbers: {mirror}")
        return mirror.shards[chip if len(mirror.shards) > 1 else 0]

    def _torch_arguments(
        self, operation: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> GoldenCall:
        preprocess = (
            operation.preprocess_golden_function_inputs
            or self._ttnn.decorators.default_preprocess_golden_function_inputs
        )
        values = preprocess(arguments, keywords)
        return GoldenCall(tuple(values[0]), values[1])

    def _widen(self, value: Any) -> Any:
        """Return a copy of a torch tensor, narrow floats as float32; anything else as it is."""
        torch = self._torch
        if not isinstance(value, torch.Tensor):
            return value
        narrow = value.dtype in (torch.bfloat16, torch.float16)
        if value.dtype in (torch.uint16, torch.uint32):  # for which torch has few functions
            return value.to(torch.int64)
        return value.to(torch.float32) if narrow else value.clone()

    def _run(self, operation: Any, call: GoldenCall, outputs: list[Any]) -> Any:
        function = self.function(operation)
        assert function is not None  # noqa: S101 - narrows the type; prepare has looked
        name, decorators = operation.python_fully_qualified_name, self._ttnn.decorators
        values: Any = (call.arguments, call.keywords)
        if not op_of(name).keeps_narrow:
            values = mapped(self._widen, values)
        if not name.endswith("_bw"):
            golden = with_own_activations(function, *values)
            with self._torch.no_grad(), self._seeded(operation, values):
                if self.hardware is None or call.facts is None or not outputs:
                    return golden()
                output = outputs[0].dtype.name
                return self.hardware.answer(name, call.facts, output, values, golden)
        if hasattr(decorators, "prepare_backward_golden_inputs"):
            values = decorators.prepare_backward_golden_inputs(values)
        return function(*values[0], **values[1])

    def _seeded(self, operation: Any, values: Any) -> AbstractContextManager[Any]:
        """Return a context in which an op with a seed draws the same numbers for the same seed.

        The program's own sequence of random numbers goes on as if nothing had been drawn.
        """
        overloads = [each for each in self._signatures.of(operation) if SEED in each.names]
        if not overloads:
            return nullcontext()
        arguments, keywords = values
        seed = keywords.get(SEED)
        for overload in overloads:
            place = overload.positional.index(SEED) if SEED in overload.positional else None
            if place is not None and place < len(arguments):
                seed = arguments[place]
        return self._drawing_from(seed if isinstance(seed, int) else 0)

    @contextmanager
    def _drawing_from(self, seed: int) -> Iterator[None]:
        with self._torch.random.fork_rng(devices=()):
            # To ttnn, zero is no seed.
            self._torch.manual_seed(seed or self._seeds.getrandbits(32))
            yield

    def fault(self, answer: Any, tensor: Any) -> str | None:
        """Return why an answer cannot be the values of a tensor; None if it can."""
        if not isinstance(answer, self._torch.Tensor):
            return f"its golden function gave {type(answer).__name__} for a tensor"
        if _without_leading_ones(answer.shape) != _without_leading_ones(tensor.shape):
            return (
                f"its golden function gave the shape {tuple(answer.shape)}, "
                f"ttnn the shape {tuple(tensor.shape)}"
            )
        return None


def lacking(name: str) -> str:
    """Return why nothing computes an op that has no golden function, if there is a reason."""
    reasons = (why for why, names in WITHOUT_NUMBERS.items() if name.startswith(names))
    return next((f": {why}" for why in reasons), "")


def mapped(change: Callable[[Any], Any], live: Any) -> Any:
    """Return nested lists, tuples and dictionaries with all their leaves changed."""
    if isinstance(live, dict):
        return {key: mapped(change, value) for key, value in live.items()}
    if type(live) in (list, tuple):
        return type(live)(mapped(change, item) for item in live)
    return change(live)


def inherited(name: str, cause: Missing) -> Missing:
    """Return that an input of ``name`` has no values, with the first op that caused it."""
    root = cause.root or cause
    return Missing(name, f"an input has no numbers since {root}", root)


def _working_chips(device: Any, coordinates: Any) -> set[int] | None:
    """Return the chips, numbered row by row, that an op was asked to run on; None for all."""
    if coordinates is None or device is None:
        return None
    columns = list(device.shape)[-1]
    return {each[0] * columns + each[1] for each in coordinates}


def _leaves(live: Any, kind: type, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """Yield each tensor in a nested result with its path."""
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
        return answer[0]  # backward goldens return a list of one for a single tensor
    if path == (0,) and isinstance(answer, (list, tuple)) and len(answer) == 1:
        return answer[0]  # goldens of convolutions return no sizes and weights
    for step in path:
        same = isinstance(answer, (list, tuple, dict)) and len(answer) == len(result)
        if not same:
            return None
        answer, result = answer[step], result[step]
    return answer


def _part(name: str, answer: Any, result: Any, path: tuple[Any, ...], tensor: Any) -> Any:
    """Return the part of a golden answer for one tensor; rows of an image in its shape."""
    part, wanted = _pick(answer, result, path), tuple(tensor.shape)
    is_flat = op_of(name).has_images_or_rows and getattr(part, "shape", ())[-1:] == wanted[-1:]
    return part.reshape(wanted) if is_flat and part.numel() == math.prod(wanted) else part


def _without_leading_ones(shape: Iterable[int]) -> tuple[int, ...]:
    """Return a shape as far as it affects where values are."""
    return tuple(dropwhile((1).__eq__, shape))


def mirror_layout(ttnn: Any, dtype: Any) -> Any:
    """Return the layout of mirrors of a dtype.

    Only formats that share exponents need tiles; all others are faster to read without.
    """
    shared = dtype in (ttnn.bfloat8_b, ttnn.bfloat4_b)
    return ttnn.TILE_LAYOUT if shared else ttnn.ROW_MAJOR_LAYOUT


def torch_dtype(ttnn: Any, torch: Any, dtype: Any) -> Any:
    """Return the torch dtype from which host packing rounds exactly once to ``dtype``."""
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
