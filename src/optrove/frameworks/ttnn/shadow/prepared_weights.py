"""Know the plain weights behind those that an op has prepared for the device.

A convolution takes its weights as a model has them, lays them out in tiles as its program reads
them, and returns them, so that the next call need not do so. torch computes with plain weights
only. So a tensor of prepared weights keeps the plain ones, rounded to its dtype, and ops that take
either compute with those. For all other ops it has no values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.ttnn.ops import op_of
from optrove.frameworks.ttnn.shadow.golden import first_line
from optrove.frameworks.ttnn.shadow.host_mirrors import (
    HostMirror,
    HostMirrors,
    MirrorOrMissing,
    Missing,
    PreparedMirror,
)
from optrove.model.values import Int, List, TensorSpec, TtnnPlacement, Tuple, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from optrove.frameworks.ttnn.shadow.golden import GoldenFunctions
    from optrove.frameworks.ttnn.shadow.weight_arguments import WeightArgument

REASON: Final = "these weights are laid out for the device, in a form that torch cannot read"
HOST: Final = "host"


PREPARE_FUNCTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "prepare_conv_weights": ("ttnn.conv2d", "weight_tensor"),
    "prepare_conv_bias": ("ttnn.conv2d", "bias_tensor"),
    "prepare_conv_transpose2d_weights": ("ttnn.conv_transpose2d", "weight_tensor"),
    "prepare_conv_transpose2d_bias": ("ttnn.conv_transpose2d", "bias_tensor"),
}
"""Functions of ttnn that only prepare weights: for which op, and which of its arguments."""


class PreparedWeights:
    """The plain weights behind those that ops of one loaded ttnn have prepared."""

    def __init__(
        self, ttnn: Any, torch: Any, mirrors: HostMirrors, golden: GoldenFunctions
    ) -> None:
        self._ttnn = ttnn
        self._torch = torch
        self._mirrors = mirrors
        self._golden = golden
        # The plain functions, so that rounding is not itself an observed op call.
        self._from_torch: Callable[..., Any] = ttnn.from_torch.function
        self._from_host_shards: Callable[..., Any] = ttnn.from_host_shards

    def plain(self, name: str, bound: Mapping[str, Any]) -> dict[str, MirrorOrMissing]:
        """Return the plain weights of an op by argument, rounded as preparing does."""
        return {
            argument: self._rounded(bound[argument], weights, bound)
            for argument, weights in op_of(name).weights.items()
            if isinstance(bound.get(argument), self._ttnn.Tensor)
        }

    def joined(self, mirror: HostMirror) -> Any:
        """Return one host tensor that holds the parts of all chips."""
        first, *others = mirror.shards
        if not others:
            return first
        shape = self._ttnn.MeshShape(1, len(mirror.shards))
        return self._from_host_shards(list(mirror.shards), shape)

    def note_prepared(self, function: str, bound: Mapping[str, Any], result: Any) -> None:
        """Set the mirror of weights that a function has prepared."""
        name, argument = PREPARE_FUNCTIONS[function]
        mirror: MirrorOrMissing | None
        try:
            mirror = self.plain(name, bound).get(argument)
        except Exception as error:  # noqa: BLE001 - ttnn has taken them; reading them gives the reason
            mirror = Missing(name, f"its weights cannot be rounded: {first_line(error)}")
        if mirror is not None:
            self._mirrors.set(result, prepared(name, mirror))

    def _rounded(
        self, tensor: Any, weights: WeightArgument, bound: Mapping[str, Any]
    ) -> MirrorOrMissing:
        mirror = self._mirrors.of(tensor)
        is_prepared = isinstance(mirror, PreparedMirror)
        if isinstance(mirror, PreparedMirror):
            mirror = mirror.plain
        if isinstance(mirror, Missing):
            return mirror
        chosen = getattr(bound.get("conv_config"), "weights_dtype", None)
        dtype = tensor.dtype if is_prepared or chosen is None else chosen
        groups = bound.get("groups", 1) if weights.grouped else 1
        done: dict[int, Any] = {}
        for shard in mirror.shards:
            if id(shard) not in done:
                rows = self._torch.movedim(self._golden.unpack(shard), weights.channels, -1)
                held = self._in_tiles(rows.unflatten(-1, (groups, -1)), dtype).flatten(-2)
                plain = self._torch.movedim(held, -1, weights.channels).contiguous()
                done[id(shard)] = self._from_torch(plain, dtype=self._ttnn.float32)
        return HostMirror(tuple(done[id(shard)] for shard in mirror.shards))

    def _in_tiles(self, rows: Any, dtype: Any) -> Any:
        """Return rows rounded as tiles of a dtype hold them."""
        tiled = self._from_torch(rows.contiguous(), dtype=dtype, layout=self._ttnn.TILE_LAYOUT)
        return self._golden.unpack(tiled)


def prepared(name: str, plain: MirrorOrMissing) -> MirrorOrMissing:
    """Return the mirror of prepared weights, given that of the plain ones."""
    return PreparedMirror(name, REASON, plain=plain) if isinstance(plain, HostMirror) else plain


def plain_shapes(name: str, arguments: Mapping[str, Value]) -> dict[str, tuple[int, ...]]:
    """Return the plain shapes of those arguments of a recorded call that were prepared."""
    sizes = {argument: found for argument, value in arguments.items() if (found := _sizes(value))}
    shapes = {}
    for argument, weights in op_of(name).weights.items():
        spec = arguments.get(argument)
        if not isinstance(spec, TensorSpec) or not isinstance(spec.placement, TtnnPlacement):
            continue
        try:
            shape = weights.shape(sizes)
        except (KeyError, ValueError):  # the recording lacks the sizes
            continue
        if spec.placement.storage != HOST and spec.shape != shape:
            shapes[argument] = shape
    return shapes


def _sizes(value: Value) -> tuple[int, ...]:
    items = value.items if isinstance(value, (List, Tuple)) else (value,)
    return tuple(item.value for item in items if isinstance(item, Int))
