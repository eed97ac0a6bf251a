"""Know weights that an op has laid out for the device by what they were before.

A convolution takes its weights as a model has them, lays them out in tiles as its program reads
them, and gives them back, so that the next call need not do so. torch computes with plain weights
only. So a tensor of laid out weights keeps the plain ones, rounded to its dtype, and ops that take
either compute with those. To all others it has no numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.ttnn.shadow.golden import first_line
from optrove.frameworks.ttnn.shadow.host_mirrors import LaidOut, Missing, Numbers, Twin, Twins
from optrove.model.values import Int, List, TensorSpec, TtnnPlacement, Tuple, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from optrove.frameworks.ttnn.shadow.golden import Golden

REASON: Final = "these weights are laid out for the device, in a form that torch cannot read"
HOST: Final = "host"


@dataclass(frozen=True, slots=True)
class Weights:
    """An argument that is laid out: its plain shape, and the axis of the output channels.

    Laid out, that axis is the last one, in which block formats share their exponents. Where it
    is ``grouped``, a row holds the channels of one group, and zeros for all others.
    """

    shape: Callable[[Mapping[str, tuple[int, ...]]], tuple[int, ...]]
    channels: int
    grouped: bool = False


def _filters(sizes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    (outputs,), (inputs,) = sizes["out_channels"], sizes["in_channels"]
    (groups,) = sizes.get("groups", (1,))
    kernel = sizes["kernel_size"]
    return (outputs, inputs // max(groups, 1), *(kernel * 2 if len(kernel) == 1 else kernel))


def _bias(sizes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    return (1, 1, 1, *sizes["out_channels"])


LAYING_OUT: Final[Mapping[str, Mapping[str, Weights]]] = {
    "ttnn.conv2d": {
        "weight_tensor": Weights(_filters, channels=0, grouped=True),
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
        try:
            numbers = self.weights(name, bound).get(argument)
        except Exception as error:  # noqa: BLE001 - ttnn has taken them; whoever reads them is told
            numbers = Missing(name, f"its weights cannot be rounded: {first_line(error)}")
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
        groups = bound.get("groups", 1) if weights.grouped else 1
        done: dict[int, Any] = {}
        for shard in numbers.shards:
            if id(shard) not in done:
                rows = self._torch.movedim(self._golden.unpack(shard), weights.channels, -1)
                held = self._held(rows.unflatten(-1, (groups, -1)), dtype).flatten(-2)
                plain = self._torch.movedim(held, -1, weights.channels).contiguous()
                done[id(shard)] = self._from_torch(plain, dtype=self._ttnn.float32)
        return Twin(tuple(done[id(shard)] for shard in numbers.shards))

    def _held(self, rows: Any, dtype: Any) -> Any:
        """Return the numbers that tiles of a dtype hold of these rows."""
        tiled = self._from_torch(rows.contiguous(), dtype=dtype, layout=self._ttnn.TILE_LAYOUT)
        return self._golden.unpack(tiled)


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
