"""Supply arguments that recordings lack, convert those that they spell, and say so.

Our own recordings have the recipe of every handle. Others have its address only, some leave
semaphores out altogether, and some have "unsupported type" in place of an argument. Such an
argument is derived from the rest of the call, made on the open device, or left at the operation's
default, and noted each time. ``build`` refuses whatever else cannot be rebuilt.

A substitute need not be the value that was passed. So a refusal of a call with a lost argument says
nothing about the operation or the board: ``excuse`` names the argument instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from optrove.frameworks.ttnn.execute.positional_arguments import is_unwritten, positional_names
from optrove.model.case import rewrite
from optrove.model.records import LOST
from optrove.model.values import (
    Bool,
    DeviceRef,
    Handle,
    Int,
    List,
    Null,
    Struct,
    Symbol,
    TensorSpec,
    TtnnPlacement,
    Value,
    walk,
)
from optrove.serializer.describe import describe
from optrove.serializer.tables import StructConverter

if TYPE_CHECKING:
    import inspect
    from collections.abc import Iterator

    from optrove.frameworks.executor import Raised
    from optrove.frameworks.ttnn.execute.invoking import Target
    from optrove.frameworks.ttnn.execute.positional_arguments import ArgumentPassing
    from optrove.frameworks.ttnn.signatures import Overload
    from optrove.serializer.tables import Tables

SEMAPHORE: Final = "ttnn.GlobalSemaphore"
Substitute: TypeAlias = Callable[["KnownArguments"], Value | None]

_IN_REDUCE_SCATTER: Final = 3
_IN_OTHERS: Final = 2
_NOT_TAKEN: Final = ("incompatible function arguments", "missing", "unexpected keyword")


@dataclass(frozen=True, slots=True)
class KnownArguments:
    """The arguments of a call by name, from which a missing one may be derived."""

    arguments: dict[str, Value]

    def tensor(self, *names: str) -> TensorSpec | None:
        """Return the first of these arguments that is a tensor."""
        found = (self.arguments.get(name) for name in names)
        return next((value for value in found if isinstance(value, TensorSpec)), None)

    def shape(self, *names: str) -> tuple[int, ...] | None:
        """Return the shape of the first of these arguments that is a tensor."""
        found = self.tensor(*names)
        return None if found is None else found.shape


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


def _device(_: KnownArguments) -> Value:
    return DeviceRef("ttnn.MeshDevice", ())


def _conv_config(known: KnownArguments) -> Value | None:
    """Return a configuration with the sharding of the input, if its width is sharded.

    ttnn chooses another one by itself, which the input then does not have.
    """
    match known.tensor("input_tensor"):
        case TensorSpec(placement=TtnnPlacement(memory=Struct(_, fields))):
            match dict(fields).get("memory_layout"):
                case Symbol(_, "WIDTH_SHARDED") as layout:
                    return Struct("ttnn.Conv2dConfig", (("shard_layout", layout),))
    return None


SUBSTITUTES: Final[dict[str, tuple[Substitute, str]]] = {
    "device": (_device, "the open device"),
    "mesh_device": (_device, "the open device"),
    "output_padded_shape": (_same_shape, "the shape of the input"),
    "input_tensor_start": (_zeros, "zeros"),
    "kernel_size": (_kernel, "the size that the weights have"),
    "shape": (_same_shape, "the shape of the input"),
    "dims": (_same_order, "the order of the input"),
    "padding": (_no_padding, "no padding"),
}
"""Substitutes of required arguments that are missing, by parameter."""

DERIVED: Final[dict[str, tuple[Substitute, str]]] = {
    "conv_config": (_conv_config, "the sharding of the input"),
}
"""Substitutes of optional arguments that were passed and lost, where the default cannot be it."""

_EXACT: Final = frozenset({"device", "mesh_device", "kernel_size"})
"""Parameters whose substitute is what was passed."""


@dataclass(slots=True)
class MissingArguments:
    """Supply the missing arguments of one call; ``notes`` list them.

    ``lost`` are those whose substitute may be another value than the one that was passed.
    """

    notes: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    _supplied: set[str] = field(default_factory=set)
    _absent: list[str] = field(default_factory=list)
    _unfit: list[str] = field(default_factory=list)
    _unknown: list[str] = field(default_factory=list)
    _dropped: list[str] = field(default_factory=list)

    def fill(self, target: Target, passing: ArgumentPassing) -> dict[str, Value]:
        """Return the arguments of a call, complete and converted as far as possible."""
        taken = set(passing.named.values())
        required = frozenset[str]().union(
            *(o.required for o in target.overloads if taken <= o.names)
        )
        known = KnownArguments(passing.values)
        filled: dict[str, Value] = {}
        for name, value in passing.values.items():
            annotation = target.annotation(passing.roles.get(name, name))
            is_empty = is_unwritten(value) or (isinstance(value, Null) and "None" not in annotation)
            if is_empty and _is_semaphore(annotation):
                filled[name] = self._semaphores(target, name, annotation)
            elif is_unwritten(value):
                self._substitute(name, value, known, filled, is_required=name in required)
            else:
                filled[name] = value
                self.lost += [f"{name} ({each})" for each in _lost_parts(value)]
        self._complete(target, passing, filled)
        self._dropped = _optional_semaphores(target, filled)
        return self._converted(target, passing, filled)

    def _substitute(
        self,
        name: str,
        value: Value,
        known: KnownArguments,
        filled: dict[str, Value],
        *,
        is_required: bool,
    ) -> None:
        table = SUBSTITUTES if is_required else DERIVED
        substitute, words = table.get(name, (lambda _: None, ""))
        supplied = substitute(known)
        if supplied is not None:
            filled[name] = supplied
            self.notes.append(f"{name} was not recorded; used instead: {words}")
        elif is_required:
            filled[name] = value
        else:
            self.notes.append(f"{name} was not recorded; left at its default")
        if name not in _EXACT:
            self.lost.append(name)

    def _complete(self, target: Target, passing: ArgumentPassing, filled: dict[str, Value]) -> None:
        """Add required semaphores, which the tracer of tt-metal leaves out of each call."""
        if not target.overloads:
            self._absent = _absent_in_python(target.signature, passing.places, filled)
            return
        ways = [(each, _absent(each, passing.places, filled)) for each in target.overloads]
        fitting = [(each, absent) for each, absent in ways if absent is not None]
        if not fitting or not all(absent for _, absent in fitting):
            return
        _, fewest = min(fitting, key=lambda way: len(way[1]))
        self._absent = sorted(fewest)
        for overload, absent in fitting:
            if all(_is_semaphore(overload.annotations[name]) for name in absent):
                for name in sorted(absent):
                    filled[name] = self._semaphores(target, name, overload.annotations[name])
                passing.roles.update(zip(passing.places, overload.positional, strict=False))
                self._absent = []
                return

    def _semaphores(self, target: Target, name: str, annotation: str) -> Value:
        """Return new semaphores for a parameter; only their number depends on the operation."""
        op = str(getattr(target.operation, "python_fully_qualified_name", ""))
        scatters = "reduce_scatter" in op or name.startswith("rs_")
        count = _IN_REDUCE_SCATTER if scatters else _IN_OTHERS
        first = 1000 + len(self._supplied) * _IN_REDUCE_SCATTER  # apart from recorded ones
        handles = tuple(Handle(SEMAPHORE, None, first + each) for each in range(count))
        self._supplied.add(name)
        self.notes.append(f"{name} was not recorded; used instead: semaphores on all cores, from 0")
        is_row = "Sequence" in annotation or "Arg" in annotation
        return List(handles) if is_row else handles[0]

    def _converted(
        self, target: Target, passing: ArgumentPassing, values: dict[str, Value]
    ) -> dict[str, Value]:
        """Return the arguments as their parameters take them; note those that none takes."""
        converted: dict[str, Value] = {}
        taken = set(passing.roles.values()) | values.keys() - set(passing.places)
        fitting = [each for each in target.overloads if taken <= each.names]
        for name, value in values.items():
            role = passing.roles.get(name, name)
            if not target.has(role):
                if isinstance(value, Null) and name not in passing.places:
                    self.notes.append(f"the installed ttnn has no parameter {name}; left out: None")
                    continue
                self._unknown.append(name)
            kinds = [
                each.annotations[role]
                for each in fitting or target.overloads
                if role in each.annotations
            ]
            new = converted[name] = target.types.converted(value, kinds)
            if new != value and not isinstance(value, Int):
                self.notes.append(
                    f"{name} was recorded as {_shown(value)}; passed as {_shown(new)}"
                )
            elif (
                new == value and kinds and not any(target.types.fits(value, kind) for kind in kinds)
            ):
                self._unfit.append(f"{name} ({_shown(value)}, where {kinds[0]} is expected)")
        return converted

    def excuse(self, raised: Raised) -> str | None:
        """Return why an exception is the fault of the recording; None if the call was complete."""
        if raised.type == "TypeError" or any(text in raised.text for text in _NOT_TAKEN):
            if self._absent:
                return f"{LOST}lacks the required argument {', '.join(self._absent)}"
            if self._unfit:
                unfit = "; ".join(self._unfit)
                return f"{LOST}has an argument that cannot be converted: {unfit}"
            if self._unknown:
                unknown = ", ".join(self._unknown)
                return (
                    f"the installed ttnn has no parameter for {unknown}; recorded with another "
                    f"version?"
                )
        semaphores = sorted({*self._supplied, *self._dropped})
        if semaphores and "semaphore" in raised.text.partition("backtrace:")[0].lower():
            return f"{LOST}lacks the semaphores {', '.join(semaphores)}"
        if self.lost:
            return (
                f"{LOST}lost the value of {', '.join(self.lost)}; a call with a substitute "
                f"is refused, which says nothing about the recorded one"
            )
        return None

    def buildable(self, value: Value, path: str, ttnn: Any, tables: Tables, device: Any) -> Value:
        """Return an argument as the installed ttnn builds it.

        Semaphores without a recipe get one. Fields of other versions that are not set are left out.
        """

        def changed(part: Value) -> Value:
            if isinstance(part, Struct):
                return self._without_unset(part, path, tables)
            if not isinstance(part, Handle) or part.recipe is not None or part.type != SEMAPHORE:
                return part
            if path not in self._supplied:
                self.notes.append(
                    f"how the semaphore in {path} was made was not recorded; "
                    f"used instead: one on all cores, from 0"
                )
            return replace(part, recipe=_semaphore_recipe(ttnn, tables, device))

        return rewrite(value, changed)

    def _without_unset(self, value: Struct, path: str, tables: Tables) -> Struct:
        converter = tables.by_name.get(value.type)
        if not isinstance(converter, StructConverter) or converter.names is None:
            return value
        known = {*converter.names, *converter.optional}
        unset = [
            name
            for name, item in value.fields
            if name not in known and item in (Null(), Bool(value=False))
        ]
        if not unset:
            return value
        self.notes.append(
            f"{value.type} of the installed ttnn has no field {', '.join(unset)}, "
            f"which {path} does not set"
        )
        return Struct(value.type, tuple(each for each in value.fields if each[0] not in unset))


def lost_shards(memory: Value | None, *, of_tensor: bool) -> bool:
    """Return whether a recording lost the shards of a sharded memory configuration.

    An argument may leave the shards to the operation, except for N-dimensional ones.
    """
    match memory:
        case Struct("ttnn.MemoryConfig", fields):
            match dict(fields):
                case {"memory_layout": Symbol(_, layout), **rest} if "SHARDED" in layout:
                    specs = (rest.get("shard_spec", Null()), rest.get("nd_shard_spec", Null()))
                    is_lost = all(isinstance(spec, Null) for spec in specs)
                    return is_lost and (of_tensor or layout.startswith("ND"))
    return False


def _lost_parts(value: Value) -> Iterator[str]:
    """Yield the parts of an argument that the recording lost, in words."""
    for _, part in walk(value):
        match part:
            case TensorSpec(placement=TtnnPlacement(memory=memory)):
                if lost_shards(memory, of_tensor=True):
                    yield "the shards of its memory"
            case Struct("ttnn.MemoryConfig"):
                if lost_shards(part, of_tensor=False):
                    yield "its shards"


def _optional_semaphores(target: Target, filled: dict[str, Value]) -> list[str]:
    """Return the optional parameters for semaphores without an argument."""
    found = {
        name
        for each in target.overloads
        for name, annotation in each.annotations.items()
        if _is_semaphore(annotation) and name not in filled
    }
    return sorted(found)


def _is_semaphore(annotation: str) -> bool:
    return "semaphore" in annotation.lower()


def _absent(overload: Overload, places: list[str], filled: dict[str, Value]) -> set[str] | None:
    """Return the required parameters without an argument; None if others do not fit."""
    placed = set(overload.positional[: len(places)])
    named = filled.keys() - set(places) - {"self"}
    if len(places) > len(overload.positional) or not named <= overload.names - placed:
        return None
    return set(overload.required - placed - named)


def _absent_in_python(
    signature: inspect.Signature | None, places: list[str], filled: dict[str, Value]
) -> list[str]:
    """Return the required parameters of a Python function without an argument."""
    if signature is None:
        return []
    placed = positional_names(signature)[: len(places)]
    wanted = [
        each.name
        for each in signature.parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    return [name for name in wanted if name not in placed and name not in filled]


def _shown(value: Value) -> str:
    match value:
        case Struct(kind) | Symbol(kind, _):
            name = f".{value.name}" if isinstance(value, Symbol) else ""
            return f"{kind}{name}"
        case Null():
            return "None"
    text = repr(getattr(value, "value", type(value).__name__.lower()))
    return text if len(text) <= 60 else f"{text[:60]}..."  # noqa: PLR2004 - enough to recognize it


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
