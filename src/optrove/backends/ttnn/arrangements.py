"""Know weights that an op has laid out for the device by what they were before.

A convolution takes its weights as a model has them, lays them out in tiles as its program reads
them, and gives them back, so that the next call need not do so. torch computes with plain weights
only. So a tensor of laid out weights keeps the plain ones, rounded to its dtype, and ops that take
either compute with those. To all others it has no numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from optrove.backends.ttnn.twins import LaidOut, Missing, Numbers, Twin, Twins
from optrove.model.values import Int, List, TensorSpec, TtnnPlacement, Tuple, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from optrove.backends.ttnn.golden import Golden

REASON: Final = "it reads these weights as they were laid out for the device, which torch cannot"
HOST: Final = "host"


@dataclass(frozen=True, slots=True)
class Weights:
    """An argument that is laid out: its plain shape, and the axis of the output channels.

    Laid out, that axis is the last one, in which block formats share their exponents.
    """

    shape: Callable[[Mapping[str, tuple[int, ...]]], tuple[int, ...]]
    channels: int


def _filters(sizes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    (outputs,), (inputs,) = sizes["out_channels"], sizes["in_channels"]
    (groups,) = sizes.get("groups", (1,))
    kernel = sizes["kernel_size"]
    return (outputs, inputs // max(groups, 1), *(kernel * 2 if len(kernel) == 1 else kernel))


def _bias(sizes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    return (1, 1, 1, *sizes["out_channels"])


LAYING_OUT: Final[Mapping[str, Mapping[str, Weights]]] = {
    "ttnn.conv2d": {
        "weight_tensor": Weights(_filters, channels=0),
        "bias_tensor": Weights(_bias, channels=-1),
    }
}
"""Ops that take weights plain or laid out, and may give them back laid out, in this order."""

PREPARING: Final[Mapping[str, tuple[str, str]]] = {
    "prepare_conv_weights": ("ttnn.conv2d", "weight_tensor"),
    "prepare_conv_bias": ("ttnn.conv2d", "bias_tensor"),
}
"""Functions of ttnn that do nothing but lay out: for which op, and which of its arguments."""


class Arrangements:
    """The plain weights behind those that ops of one loaded ttnn have laid out."""

    def __init__(self, ttnn: Any, torch: Any, twins: Twins, golden: Golden) -> None:
        self._ttnn = ttnn
        self._torch = torch
        self._twins = twins
        self._golden = golden
        # The plain functions, so that rounding is not itself an observed op call.
        self._from_torch: Callable[..., Any] = ttnn.from_torch.function
        self._from_host_shards: Callable[..., Any] = ttnn.from_host_shards

    def weights(self, name: str, bound: Mapping[str, Any]) -> dict[str, Numbers]:
        """Return the plain numbers of an op's weights by argument, rounded as laying out does."""
        return {
            argument: self._rounded(bound[argument], weights, bound)
            for argument, weights in LAYING_OUT.get(name, {}).items()
            if isinstance(bound.get(argument), self._ttnn.Tensor)
        }

    def joined(self, numbers: Twin) -> Any:
        """Return one host tensor that holds the parts of all chips."""
        first, *others = numbers.shards
        if not others:
            return first
        shape = self._ttnn.MeshShape(1, len(numbers.shards))
        return self._from_host_shards(list(numbers.shards), shape)

    def prepared(self, function: str, bound: Mapping[str, Any], result: Any) -> None:
        """Note what a function that only lays weights out has made."""
        name, argument = PREPARING[function]
        numbers = self.weights(name, bound).get(argument)
        if numbers is not None:
            self._twins.view(result, laid_out(name, numbers))

    def _rounded(self, tensor: Any, weights: Weights, bound: Mapping[str, Any]) -> Numbers:
        numbers = self._twins.numbers(tensor)
        known = isinstance(numbers, LaidOut)
        if isinstance(numbers, LaidOut):
            numbers = numbers.plain
        if isinstance(numbers, Missing):
            return numbers
        chosen = getattr(bound.get("conv_config"), "weights_dtype", None)
        dtype = tensor.dtype if known or chosen is None else chosen
        done: dict[int, Any] = {}
        for shard in numbers.shards:
            if id(shard) not in done:
                done[id(shard)] = self._round(shard, weights.channels, dtype)
        return Twin(tuple(done[id(shard)] for shard in numbers.shards))

    def _round(self, shard: Any, channels: int, dtype: Any) -> Any:
        """Return a host tensor in float32 with numbers that ``dtype`` can hold."""
        moved = self._torch.movedim(self._golden.unpack(shard), channels, -1).contiguous()
        tiled = self._from_torch(moved, dtype=dtype, layout=self._ttnn.TILE_LAYOUT)
        back = self._torch.movedim(self._golden.unpack(tiled), -1, channels)
        return self._from_torch(back.contiguous(), dtype=self._ttnn.float32)


def laid_out(name: str, plain: Numbers) -> Numbers:
    """Return the numbers of weights that were laid out, from what is known of the plain ones."""
    return LaidOut(name, REASON, plain) if isinstance(plain, Twin) else plain


def plain_shapes(name: str, arguments: Mapping[str, Value]) -> dict[str, tuple[int, ...]]:
    """Return the plain shapes of those arguments of a recorded call that were laid out."""
    sizes = {argument: found for argument, value in arguments.items() if (found := _sizes(value))}
    shapes = {}
    for argument, weights in LAYING_OUT.get(name, {}).items():
        spec = arguments.get(argument)
        if not isinstance(spec, TensorSpec) or not isinstance(spec.placement, TtnnPlacement):
            continue
        try:
            shape = weights.shape(sizes)
        except (KeyError, ValueError):  # the recording does not tell what they were
            continue
        if spec.placement.storage != HOST and spec.shape != shape:
            shapes[argument] = shape
    return shapes


def _sizes(value: Value) -> tuple[int, ...]:
    items = value.items if isinstance(value, (List, Tuple)) else (value,)
    return tuple(item.value for item in items if isinstance(item, Int))
