"""The converter table of torch: tensors, dtypes, devices, sizes, layouts and generators.

A tensor is described by what its handle tells: no number is read and no operation runs. Subclasses
such as ``nn.Parameter`` count as tensors. Tensors whose size torch itself refuses to tell (nested
ones) have no recorded form.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

from optrove.backends.base import (
    ConverterTable,
    Fields,
    HandleConverter,
    StructConverter,
    SymbolConverter,
    TensorConverter,
)
from optrove.model.values import TensorSpec, TorchPlacement

if TYPE_CHECKING:
    from types import ModuleType

    from optrove.backends.base import Describing

_CONSTANTS = ("dtype", "layout", "memory_format", "qscheme")


def table() -> ConverterTable:
    """Return the converters of the installed torch, which is imported now if it was not yet."""
    torch = importlib.import_module("torch")
    return ConverterTable(
        "torch",
        [
            *(_constants(torch, kind) for kind in _CONSTANTS),
            TensorConverter("torch.Tensor", torch.Tensor, TensorRule(torch).spec, subclasses=True),
            StructConverter(
                "torch.device",
                torch.device,
                lambda live: {"type": live.type, "index": live.index},
                partial(_make_device, torch),
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
            ),
        ],
    )


class TensorRule:
    """How a tensor is described; knows the names of dtypes and layouts."""

    __slots__ = ("_dtypes", "_layouts", "_strided")

    def __init__(self, torch: ModuleType) -> None:
        dtypes = _members(torch, torch.dtype)
        layouts = _members(torch, torch.layout)
        self._dtypes = {dtype: f"torch.{name}" for name, dtype in dtypes.items()}
        self._layouts = {layout: name for name, layout in layouts.items()}
        self._strided = torch.strided

    def spec(self, live: Any, describing: Describing, identity: int) -> TensorSpec:  # noqa: ARG002 - the signature of TensorConverter.spec
        """Return the specification of ``live``; strides only where its layout has them."""
        layout = live.layout
        placement = TorchPlacement(
            strides=tuple(live.stride()) if layout is self._strided else (),
            layout=self._layouts[layout],
            device=device_name(live.device),
            requires_grad=live.requires_grad,
        )
        return TensorSpec(tuple(live.shape), self._dtypes[live.dtype], placement, identity)


def device_name(live: Any) -> str:
    """Return a device as torch spells it: ``cpu``, ``cuda:0``."""
    kind: str = live.type
    return kind if live.index is None else f"{kind}:{live.index}"


def _constants(torch: ModuleType, kind: str) -> SymbolConverter:
    cls = getattr(torch, kind)
    members = _members(torch, cls)
    names = {member: name for name, member in members.items()}
    return SymbolConverter(f"torch.{kind}", cls, members, names.__getitem__)


def _members(torch: ModuleType, cls: type) -> dict[str, Any]:
    """Return the constants of ``cls`` by their one name, which is not that of an alias.

    ``torch.half`` and ``torch.float16`` are one object. Dtypes and memory formats tell their own
    name to whoever copies them; the other constants have no aliases.
    """
    found = {name: member for name, member in vars(torch).items() if isinstance(member, cls)}
    return {_own_name(name, member): member for name, member in sorted(found.items())}


def _own_name(name: str, member: Any) -> str:
    told = member.__reduce__() if "__reduce__" in vars(type(member)) else name
    return told.removeprefix("torch.") if isinstance(told, str) else name


def _make_device(torch: ModuleType, fields: Fields) -> Any:
    return torch.device(fields["type"], fields["index"])


def _generator_recipe(live: Any) -> Fields:
    """Return the seed a generator started from; numbers already drawn are not replayed."""
    return {"device": live.device, "seed": live.initial_seed()}


def _make_generator(torch: ModuleType, recipe: Fields, _: Any) -> Any:
    generator = torch.Generator(device=recipe["device"])
    generator.manual_seed(recipe["seed"])
    return generator
