"""Supply what old recordings have dropped, and say so.

Our own recordings tell how a handle was made. Others keep its address only, and some write
"unsupported type" in the place of an argument. Such a fact is supplied from what the call
itself tells, or left to the operation's own default, and is noted each time. Whatever else
cannot be rebuilt is left for ``build`` to refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from optrove.frameworks.ttnn.execute.positional_arguments import is_unwritten
from optrove.model.case import rewrite
from optrove.model.values import Bool, DeviceRef, Handle, Int, List, Struct, TensorSpec, Value
from optrove.serializer.describe import describe

if TYPE_CHECKING:
    from optrove.frameworks.ttnn.execute.invoking import Target
    from optrove.serializer.tables import Tables

SEMAPHORE: Final = "ttnn.GlobalSemaphore"
Guess: TypeAlias = Callable[["Known"], Value | None]


@dataclass(frozen=True, slots=True)
class Known:
    """The arguments of a call by their real names, from which another one may follow."""

    arguments: dict[str, Value]

    def shape(self, *names: str) -> tuple[int, ...] | None:
        """Return the shape of the first of these arguments that is a tensor."""
        for name in names:
            value = self.arguments.get(name)
            if isinstance(value, TensorSpec):
                return value.shape
        return None


def _row(numbers: tuple[int, ...] | None) -> Value | None:
    return None if numbers is None else List(tuple(map(Int, numbers)))


def _same_shape(known: Known) -> Value | None:
    return _row(known.shape("input_tensor", "self"))


def _same_order(known: Known) -> Value | None:
    shape = known.shape("input_tensor", "self")
    return None if shape is None else _row(tuple(range(len(shape))))


def _zeros(known: Known) -> Value | None:
    shape = known.shape("input_tensor", "self")
    return None if shape is None else _row((0,) * len(shape))


def _no_padding(known: Known) -> Value | None:
    shape = known.shape("input_tensor", "self")
    return None if shape is None else List(tuple(List((Int(0), Int(0))) for _ in shape))


def _kernel(known: Known) -> Value | None:
    shape = known.shape("weight_tensor")
    return None if shape is None else _row(shape[-2:])


FOLLOWING: Final[dict[str, tuple[Guess, str]]] = {
    "device": (lambda _: DeviceRef("ttnn.MeshDevice", ()), "the open device"),
    "mesh_device": (lambda _: DeviceRef("ttnn.MeshDevice", ()), "the open device"),
    "output_padded_shape": (_same_shape, "the shape of the input"),
    "input_tensor_start": (_zeros, "zeros"),
    "kernel_size": (_kernel, "the size that the weights have"),
    "shape": (_same_shape, "the shape of the input"),
    "dims": (_same_order, "the order of the input"),
    "padding": (_no_padding, "no padding"),
}
"""What stands for a required argument that was dropped, by the name of its parameter."""


@dataclass(slots=True)
class Supplies:
    """What was supplied for one call."""

    notes: list[str] = field(default_factory=list)

    def arguments(
        self, target: Target, values: dict[str, Value], named: dict[str, str]
    ) -> dict[str, Value]:
        """Return the arguments without gaps, as far as they can be closed."""
        required = frozenset[str]().union(
            *(o.required for o in target.overloads if set(named.values()) <= o.names)
        )
        known = Known(values)
        closed: dict[str, Value] = {}
        for name, value in values.items():
            if not is_unwritten(value):
                closed[name] = value
            elif name in FOLLOWING and name in required:
                guess, words = FOLLOWING[name]
                supplied = guess(known)
                closed[name] = value if supplied is None else supplied
                if supplied is not None:
                    self.notes.append(f"{name} was not recorded; used instead: {words}")
            elif name not in required:
                self.notes.append(f"{name} was not recorded; left at its default")
            else:
                closed[name] = value
        return closed

    def truths(self, target: Target, values: dict[str, Value]) -> dict[str, Value]:
        """Return the arguments with the truth values that C++ has printed as 0 and 1."""
        kinds: dict[str, str] = {}
        for overload in target.overloads:
            kinds.update(overload.annotations)
        return {
            name: Bool(value.value == 1)
            if kinds.get(name) == "bool" and isinstance(value, Int) and value.value in (0, 1)
            else value
            for name, value in values.items()
        }

    def recipes(self, value: Value, path: str, ttnn: Any, tables: Tables, device: Any) -> Value:
        """Return an argument whose semaphores have a recipe, supplied where it is not told."""

        def with_recipe(part: Value) -> Value:
            if not isinstance(part, Handle) or part.recipe is not None or part.type != SEMAPHORE:
                return part
            self.notes.append(
                f"how the semaphore in {path} was made was not recorded; "
                f"used instead: one on all cores, from 0"
            )
            return replace(part, recipe=_semaphore_recipe(ttnn, tables, device))

        return rewrite(value, with_recipe)


def _semaphore_recipe(ttnn: Any, tables: Tables, device: Any) -> Struct:
    grid = device.compute_with_storage_grid_size()
    corner = ttnn.CoreCoord(grid.x - 1, grid.y - 1)
    recipe = {
        "cores": ttnn.CoreRangeSet([ttnn.CoreRange(ttnn.CoreCoord(0, 0), corner)]),
        "initial_value": 0,
        "buffer_type": ttnn.BufferType.L1,
    }
    fields = tuple((name, describe(item, tables)) for name, item in recipe.items())
    return Struct(SEMAPHORE, fields)
