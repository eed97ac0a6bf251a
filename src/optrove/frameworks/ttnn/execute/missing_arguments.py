"""Supply arguments that old recordings lack, and say so.

Our own recordings have the recipe of every handle. Others have its address only, and some have
"unsupported type" in place of an argument. Such an argument is derived from the rest of the call,
or left at the operation's default, and noted each time. ``build`` refuses whatever else cannot be
rebuilt.
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
    from optrove.frameworks.ttnn.execute.positional_arguments import ArgumentPassing
    from optrove.serializer.tables import Tables

SEMAPHORE: Final = "ttnn.GlobalSemaphore"
Substitute: TypeAlias = Callable[["KnownArguments"], Value | None]


@dataclass(frozen=True, slots=True)
class KnownArguments:
    """The arguments of a call by name, from which a missing one may be derived."""

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


def _same_shape(known: KnownArguments) -> Value | None:
    return _row(known.shape("input_tensor", "self"))


def _same_order(known: KnownArguments) -> Value | None:
    shape = known.shape("input_tensor", "self")
    return None if shape is None else _row(tuple(range(len(shape))))


def _zeros(known: KnownArguments) -> Value | None:
    shape = known.shape("input_tensor", "self")
    return None if shape is None else _row((0,) * len(shape))


def _no_padding(known: KnownArguments) -> Value | None:
    shape = known.shape("input_tensor", "self")
    return None if shape is None else List(tuple(List((Int(0), Int(0))) for _ in shape))


def _kernel(known: KnownArguments) -> Value | None:
    shape = known.shape("weight_tensor")
    return None if shape is None else _row(shape[-2:])


SUBSTITUTES: Final[dict[str, tuple[Substitute, str]]] = {
    "device": (lambda _: DeviceRef("ttnn.MeshDevice", ()), "the open device"),
    "mesh_device": (lambda _: DeviceRef("ttnn.MeshDevice", ()), "the open device"),
    "output_padded_shape": (_same_shape, "the shape of the input"),
    "input_tensor_start": (_zeros, "zeros"),
    "kernel_size": (_kernel, "the size that the weights have"),
    "shape": (_same_shape, "the shape of the input"),
    "dims": (_same_order, "the order of the input"),
    "padding": (_no_padding, "no padding"),
}
"""Substitutes of required arguments that are missing, by parameter."""


@dataclass(slots=True)
class MissingArguments:
    """Supply the missing arguments of one call; ``notes`` list them."""

    notes: list[str] = field(default_factory=list)

    def fill(self, target: Target, passing: ArgumentPassing) -> dict[str, Value]:
        """Return the arguments of a call, complete as far as possible."""
        taken = set(passing.named.values())
        required = frozenset[str]().union(
            *(o.required for o in target.overloads if taken <= o.names)
        )
        known = KnownArguments(passing.values)
        filled: dict[str, Value] = {}
        for name, value in passing.values.items():
            if not is_unwritten(value):
                filled[name] = value
            elif name not in required:
                self.notes.append(f"{name} was not recorded; left at its default")
            else:
                substitute, words = SUBSTITUTES.get(name, (lambda _: None, ""))
                supplied = substitute(known)
                filled[name] = value if supplied is None else supplied
                if supplied is not None:
                    self.notes.append(f"{name} was not recorded; used instead: {words}")
        return self._with_booleans(target, filled) if passing.named else filled

    def _with_booleans(self, target: Target, values: dict[str, Value]) -> dict[str, Value]:
        """Return the arguments with booleans where C++ printed 0 and 1."""
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
        """Return an argument whose semaphores all have a recipe, supplied where it is missing."""

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
