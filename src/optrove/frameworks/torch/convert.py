"""The converter table of torch: tensors, dtypes, devices, sizes, layouts, results, generators.

A tensor is described by its metadata: no number is read, and neither ``__torch_function__`` nor a
mode notices. Subclasses such as ``nn.Parameter`` count as
tensors. A tensor whose size is not in numbers but in symbols has no recorded form and is Opaque.

Limit: torch does not show the storage of sparse tensors and of those within a transform (vmap,
grad), so their views count as separate tensors.
"""

from __future__ import annotations

import importlib
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from optrove.model.values import (
    NESTED,
    QUANTIZED,
    NestedPlacement,
    QuantizedPlacement,
    TensorSpec,
    TorchPlacement,
)
from optrove.serializer.tables import (
    ConverterTable,
    Fields,
    HandleConverter,
    StructConverter,
    SymbolConverter,
    TensorConverter,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from optrove.serializer.tables import Describing

_CONSTANTS = ("dtype", "layout", "memory_format", "qscheme")


def table() -> ConverterTable:
    """Import torch and return its converters."""
    torch = importlib.import_module("torch")
    rule = TensorRule(torch)
    return ConverterTable(
        "torch",
        [
            *(_constants(torch, kind) for kind in _CONSTANTS),
            *_enums(torch),
            *_results(torch),
            TensorConverter(
                "torch.Tensor", torch.Tensor, rule.spec, subclasses=True, storage=rule.storage
            ),
            StructConverter(
                "torch.device",
                torch.device,
                lambda live: {"type": live.type, "index": live.index},
                lambda fields: torch.device(fields["type"], fields["index"]),
                ("type", "index"),
            ),
            StructConverter(
                "torch.Size",
                torch.Size,
                lambda live: {"sizes": list(live)},
                lambda fields: torch.Size(fields["sizes"]),
                ("sizes",),
            ),
            HandleConverter(
                "torch.Generator",
                torch.Generator,
                partial(_make_generator, torch),
                _generator_recipe,
                ("device", "seed"),
                needs_device=False,
            ),
            HandleConverter(
                "torch.UntypedStorage",
                torch.UntypedStorage,
                lambda recipe, _: torch.UntypedStorage(recipe["bytes"], device=recipe["device"]),
                lambda live: {"bytes": live.nbytes(), "device": live.device},
                ("bytes", "device"),
                needs_device=False,
            ),
            HandleConverter(
                "torch.ScriptObject",
                torch.ScriptObject,
                _refuse_script_object,
                lambda live: {"class": live._type().qualified_name()},  # noqa: SLF001 - has no public name
                ("class",),
                needs_device=False,
            ),
        ],
    )


class TensorRule:
    """Describes tensors; knows the names of dtypes and layouts."""

    __slots__ = ("_dtypes", "_layouts", "_strided", "_unnoticed")

    def __init__(self, torch: ModuleType) -> None:
        dtypes = _members(torch, torch.dtype)
        layouts = _members(torch, torch.layout)
        self._dtypes = {dtype: f"torch.{name}" for name, dtype in dtypes.items()}
        self._layouts = {layout: name for name, layout in layouts.items()}
        self._strided = torch.strided
        self._unnoticed = torch._C.DisableTorchFunction  # noqa: SLF001 - has no public name

    def spec(self, live: Any, describing: Describing, identity: int, storage: int) -> TensorSpec:  # noqa: ARG002 - the signature of TensorConverter.spec
        """Return the specification of ``live``; strides only if its layout has them.

        ValueError if its sizes are not numbers.
        """
        with self._unnoticed():
            if live.is_nested or live.is_quantized:
                from torch.utils import _python_dispatch as modes

                # Torch reads sizes and scales by operations, which no mode may notice.
                with modes._disable_current_modes():  # noqa: SLF001 - has no public name
                    make = self._nested if live.is_nested else self._quantized
                    return make(live, identity, storage)
            layout = live.layout
            placement = TorchPlacement(
                strides=_numbers(live.stride()) if layout is self._strided else (),
                layout=self._layouts[layout],
                device=device_name(live.device),
                requires_grad=live.requires_grad,
                offset=_numbers((live.storage_offset(),))[0],
                conjugate=live.is_conj(),
                negative=live.is_neg(),
            )
            shape = _numbers(live.shape)
            return TensorSpec(shape, self._dtypes[live.dtype], placement, identity, storage)

    def _quantized(self, live: Any, identity: int, storage: int) -> TensorSpec:
        scheme = str(live.qscheme()).removeprefix("torch.")
        whole = scheme.startswith("per_tensor")
        placement = QuantizedPlacement(
            strides=_numbers(live.stride()),
            layout=QUANTIZED,
            device=device_name(live.device),
            requires_grad=live.requires_grad,
            offset=_numbers((live.storage_offset(),))[0],
            scheme=scheme,
            scale=live.q_scale() if whole else None,
            zero_point=live.q_zero_point() if whole else None,
            axis=None if whole else live.q_per_channel_axis(),
        )
        shape = _numbers(live.shape)
        return TensorSpec(shape, self._dtypes[live.dtype], placement, identity, storage)

    def _nested(self, live: Any, identity: int, storage: int) -> TensorSpec:
        """Return the specification of a nested tensor; its size is that of the largest tensors."""
        jagged = live.layout is not self._strided
        components = _jagged(live) if jagged else live._nested_tensor_size().tolist()  # noqa: SLF001 - has no public name
        placement = NestedPlacement(
            strides=(),
            layout="jagged" if jagged else NESTED,
            device=device_name(live.device),
            requires_grad=live.requires_grad,
            components=tuple(map(tuple, components)),
            axis=live._ragged_idx - 1 if jagged else 0,  # noqa: SLF001 - as above
        )
        shape = (len(components), *map(max, zip(*components, strict=True)))
        return TensorSpec(shape, self._dtypes[live.dtype], placement, identity, storage)

    def storage(self, live: Any) -> tuple[str, int]:
        """Return a key that a tensor and its views share; its own if torch shows no storage."""
        with self._unnoticed():
            try:
                return ("storage", live.untyped_storage()._cdata)  # noqa: SLF001 - identifies a storage without reading it
            except NotImplementedError:
                return ("tensor", id(live))


def _jagged(live: Any) -> list[list[int]]:
    """Return the shapes of the tensors in a jagged one; ValueError if they are not known here."""
    values, offsets, lengths = live._values, live._offsets, live._lengths  # noqa: SLF001 - as above
    if offsets.device.type != "cpu":
        raise ValueError("the lengths of this jagged tensor are on another device")
    places = offsets.tolist()
    found = (
        [end - begin for begin, end in pairwise(places)] if lengths is None else lengths.tolist()
    )
    axis, shape = live._ragged_idx - 1, _numbers(values.shape)  # noqa: SLF001 - as above
    return [[*shape[:axis], length, *shape[axis + 1 :]] for length in found]


def _numbers(sizes: Iterable[Any]) -> tuple[int, ...]:
    """Return ``sizes`` as plain numbers; ValueError for symbolic ones."""
    found = tuple(sizes)
    for size in found:
        if type(size) is not int:
            raise ValueError("this tensor's size is not a number but a symbol")
    return found


def device_name(live: Any) -> str:
    """Return the name of a device in torch: ``cpu``, ``cuda:0``."""
    kind: str = live.type
    return kind if live.index is None else f"{kind}:{live.index}"


def _results(torch: ModuleType) -> list[StructConverter]:
    """Return the converters of named results, such as that of ``torch.max`` along a dimension.

    Their module also has aliases of them, which do not count.
    """
    found = vars(torch.return_types).items()
    return [
        _result(kind)
        for name, kind in sorted(found)
        if isinstance(kind, type) and issubclass(kind, tuple) and kind.__name__ == name
    ]


def _result(kind: Any) -> StructConverter:
    names: tuple[str, ...] = kind.__match_args__
    return StructConverter(
        f"torch.return_types.{kind.__name__}",
        kind,
        lambda live: dict(zip(names, live, strict=True)),
        lambda fields: kind([fields[name] for name in names]),
        names,
    )


def _constants(torch: ModuleType, kind: str) -> SymbolConverter:
    cls = getattr(torch, kind)
    members = _members(torch, cls)
    names = {member: name for name, member in members.items()}
    return SymbolConverter(f"torch.{kind}", cls, members, names.__getitem__)


def _enums(torch: ModuleType) -> list[SymbolConverter]:
    """Return the converters of torch's enumerations that are written in C++."""
    distributed = getattr(torch._C, "_distributed_c10d", None)  # noqa: SLF001 - where the class is
    reduce_op = getattr(distributed, "ReduceOp", None)
    found = {
        "torch.nn.attention.SDPBackend": getattr(torch._C, "_SDPBackend", None),  # noqa: SLF001 - has no public name
        "torch.distributed.ReduceOp": getattr(reduce_op, "RedOpType", None),
    }
    return [
        SymbolConverter(name, kind, dict(kind.__members__), lambda live: str(live.name))
        for name, kind in found.items()
        if kind is not None
    ]


def _members(torch: ModuleType, cls: type) -> dict[str, Any]:
    """Return the constants of ``cls`` by name, without aliases.

    ``torch.half`` and ``torch.float16`` are one object. Dtypes and memory formats have their own
    name in ``__reduce__``; the other constants have no aliases.
    """
    found = {name: member for name, member in vars(torch).items() if isinstance(member, cls)}
    return {_own_name(name, member): member for name, member in sorted(found.items())}


def _own_name(name: str, member: Any) -> str:
    own = member.__reduce__() if "__reduce__" in vars(type(member)) else name
    return own.removeprefix("torch.") if isinstance(own, str) else name


def _refuse_script_object(recipe: Fields, _: Any) -> Any:
    """Refuse: a process group or packed weights are known by their class only."""
    name = recipe["class"].rpartition(".classes.")[2]
    raise ValueError(f"an object of the class {name} cannot be recreated")


def _generator_recipe(live: Any) -> Fields:
    """Return the seed of a generator; numbers that were drawn already are not replayed."""
    return {"device": live.device, "seed": live.initial_seed()}


def _make_generator(torch: ModuleType, recipe: Fields, _: Any) -> Any:
    generator = torch.Generator(device=recipe["device"])
    generator.manual_seed(recipe["seed"])
    return generator
