"""What is put into the tensors of a replay: numbers from a seed, by the role of each argument."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.seeded_tensors import TorchInputs
from optrove.frameworks.ttnn.probe.prepared_weights import plain_shapes
from optrove.frameworks.ttnn.shadow.golden import torch_dtype
from optrove.frameworks.ttnn.shadow.shadow import tell_shadow
from optrove.model.values import TensorSpec, TtnnPlacement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from optrove.frameworks.ttnn.shadow.host_mirrors import Twins
    from optrove.model.values import MeshPlacement, Value

USUAL_TILE: Final = (32, 32)


class Contents:
    """The numbers of one call's tensors.

    ``names`` gives arguments that were recorded by their places the names of their parameters.
    """

    def __init__(
        self,
        ttnn: Any,
        arguments: Mapping[str, Value],
        names: Mapping[str, str],
        *,
        seed: int,
        twins: Twins | None = None,
    ) -> None:
        self._ttnn = ttnn
        self._names = names
        self._arguments = {names.get(name, name): value for name, value in arguments.items()}
        self._seed = seed
        self._twins = twins
        self._inputs: TorchInputs | None = None

    def shards(self, spec: TensorSpec, argument: str, memory: Any = None) -> list[Any]:
        """Return a host tensor for each chip that holds a part, in the order of the chips.

        They tell of ``memory``, where it is given and torch is there to make such a tensor.
        """
        placement = spec.placement
        if not isinstance(placement, TtnnPlacement):
            raise TypeError("it is no tensor of ttnn")
        if placement.mesh is None:
            return [self._packed(spec, argument, memory)]
        parts: dict[tuple[int, ...], Any] = {}
        shards = []
        for part in parts_of(placement.mesh):
            if part not in parts:
                parts[part] = self._packed(spec, argument, memory)
            shards.append(parts[part])
        return shards

    def padded(self, shards: list[Any], shape: tuple[int, ...]) -> list[Any]:
        """Return the host tensors with zeros up to a shape."""
        torch = import_module("torch")
        wider: dict[int, Any] = {}
        for shard in shards:
            if id(shard) not in wider:
                sizes = zip(reversed(shape), reversed(tuple(shard.shape)), strict=True)
                ends = [end for size, own in sizes for end in (0, size - own)]
                numbers = torch.nn.functional.pad(shard.to_torch(), ends)
                wider[id(shard)] = self._ttnn.from_torch(
                    numbers, dtype=shard.dtype, layout=shard.layout, tile=shard.tile
                )
        return [wider[id(shard)] for shard in shards]

    def noted(self, live: Any, shards: list[Any]) -> None:
        """Take note of what was put into a tensor."""
        if self._twins is not None:
            from optrove.frameworks.ttnn.shadow.host_mirrors import Twin

            self._twins.view(live, Twin(tuple(shards)))
            tell_shadow(self._ttnn, live, Twin(tuple(shards)))

    def plain(self, op: str) -> dict[str, Any]:
        """Return host tensors of the plain weights behind those that ``op`` took laid out.

        They are keyed as the recorded arguments are.
        """
        recorded = {role: name for name, role in self._names.items()}
        return {
            recorded.get(name, name): self._ttnn.from_torch(
                self._drawing().drawn(shape, name, integers=False), dtype=self._ttnn.float32
            )
            for name, shape in plain_shapes(op, self._arguments).items()
        }

    def foreign(self, spec: TensorSpec, argument: str) -> Any:
        """Return a tensor of torch or an array of numpy."""
        return self._drawing().make(spec, self._names.get(argument, argument))

    def _packed(self, spec: TensorSpec, argument: str, memory: Any) -> Any:
        ttnn, name, placement = self._ttnn, self._names.get(argument, argument), spec.placement
        assert isinstance(placement, TtnnPlacement)  # noqa: S101 - narrows the type; shards has looked
        dtype = ttnn.DataType[spec.dtype.removeprefix("ttnn.").upper()]
        layout, tile = ttnn.Layout[placement.layout], placement.tile
        known = None
        if tile is not None and (tile.shape != USUAL_TILE or tile.transpose_of_faces):
            known = ttnn.Tile(list(tile.shape), tile.transpose_of_faces)
        if known is None and find_spec("torch") is None:
            # Only a mock board does without torch, and nobody reads a number there.
            return ttnn.zeros(list(spec.shape), dtype=dtype, layout=layout)
        drawing = self._drawing()
        wanted = torch_dtype(ttnn, import_module("torch"), dtype)
        numbers = drawing.drawn(spec.shape, name, integers=not wanted.is_floating_point)
        return ttnn.from_torch(
            numbers.to(wanted), dtype=dtype, layout=layout, tile=known, memory_config=memory
        )

    def _drawing(self) -> TorchInputs:
        if self._inputs is None:
            try:
                torch = import_module("torch")
            except ImportError as error:
                raise ValueError(
                    "numbers are drawn by torch, which is not installed; "
                    "pip install 'optrove[torch]'"
                ) from error
            self._inputs = TorchInputs(torch, self._arguments, self._seed)
        return self._inputs


def parts_of(mesh: MeshPlacement) -> list[tuple[int, ...]]:
    """Return which part of a tensor each of its chips holds; equal ones hold the same numbers."""
    shape, count = mesh.distribution_shape, len(mesh.coordinates)
    if prod(shape) != count:
        return [(chip,) for chip in range(count)]
    split = [axis for axis, dim in enumerate(mesh.placements) if dim is not None]
    places = product(*(range(size) for size in shape))
    return [tuple(place[axis] for axis in split) for place in places]
