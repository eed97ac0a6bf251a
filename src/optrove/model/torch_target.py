"""Where cases of torch run: the device, the compiler, and the modules to import."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from optrove.model.case import Case, rewrite
from optrove.model.values import Int, Null, Struct, TensorSpec, Text, TorchPlacement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from optrove.model.values import Value

_AS_RECORDED: Final = "as recorded"
_COMPILED: Final = "compiled by "
_MAPPED: Final = "mapped "
_IMPORTED: Final = "with "
_DEVICE: Final = re.compile(r"[a-z][a-z0-9_]*(:\d+)?")


@dataclass(frozen=True, slots=True)
class TorchTarget:
    """Where cases of torch run; the default is as they were recorded.

    ``device`` takes the place of every recorded device, ``mapped`` of some. ``compiler`` is a
    backend of ``torch.compile``. ``imports`` are modules that register operations. The text of a
    target is stored with attempts, in the place of a board.
    """

    device: str | None = None
    mapped: tuple[tuple[str, str], ...] = ()
    compiler: str | None = None
    imports: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [self.device or _AS_RECORDED]
        if self.compiler is not None:
            parts.append(_COMPILED + self.compiler)
        if self.mapped:
            parts.append(_MAPPED + " ".join(f"{old}={new}" for old, new in self.mapped))
        if self.imports:
            parts.append(_IMPORTED + " ".join(self.imports))
        return ", ".join(parts)

    @property
    def text(self) -> str | None:
        """The text of the target; None for the default."""
        return None if self == TorchTarget() else str(self)

    @staticmethod
    def parse(text: str | None) -> TorchTarget:
        """Return the target with this text."""
        target = TorchTarget()
        first, *parts = (text or _AS_RECORDED).split(", ")
        if first != _AS_RECORDED:
            target = replace(target, device=first)
        for part in parts:
            if part.startswith(_COMPILED):
                target = replace(target, compiler=part.removeprefix(_COMPILED))
            elif part.startswith(_MAPPED):
                pairs = part.removeprefix(_MAPPED).split()
                target = replace(target, mapped=tuple(map(device_pair, pairs)))
            elif part.startswith(_IMPORTED):
                target = replace(target, imports=tuple(part.removeprefix(_IMPORTED).split()))
        return target

    @property
    def words(self) -> str:
        """The target as messages name it: ``recorded devices, compiled by inductor``."""
        text = str(self)
        return text if self.device else text.replace(_AS_RECORDED, "recorded devices", 1)

    def options(self) -> list[str]:
        """Return the options of the command line that mean this target."""
        return [
            *(() if self.device is None else ("--device", self.device)),
            *(() if self.compiler is None else ("--compile", self.compiler)),
            *(word for old, new in self.mapped for word in ("--map", f"{old}={new}")),
            *(word for name in self.imports for word in ("--import", name)),
        ]

    def device_for(self, recorded: str) -> str:
        """Return the device that takes the place of a recorded one."""
        mapping: Mapping[str, str] = dict(self.mapped)
        mapped = mapping.get(recorded) or mapping.get(recorded.partition(":")[0])
        return mapped or self.device or recorded

    def placed(self, case: Case) -> Case:
        """Return a case with its tensors and device arguments on the devices of this target."""
        arguments = tuple((name, self.placed_value(value)) for name, value in case.arguments)
        return Case(case.op, arguments)

    def placed_value(self, value: Value) -> Value:
        """Return a value with everything in it on the devices of this target."""
        if self.device is None and not self.mapped:
            return value
        return rewrite(value, self._moved)

    def _moved(self, value: Value) -> Value:
        match value:
            case TensorSpec(placement=TorchPlacement() as placement):
                device = self.device_for(placement.device)
                return replace(value, placement=replace(placement, device=device))
            case Struct("torch.device"):
                name = device_name(value)
                return value if name is None else device_value(self.device_for(name))
        return value


def device_value(name: str) -> Struct:
    """Return a device argument of torch, named as in ``cuda:1``."""
    kind, _, index = name.partition(":")
    number = Int(int(index)) if index.isdigit() else Null()
    return Struct("torch.device", (("index", number), ("type", Text(kind))))


def device_name(value: Struct) -> str | None:
    """Return the name of a device argument of torch; None if its type was not recorded."""
    match dict(value.fields):
        case {"type": Text(kind), "index": Int(index)}:
            return f"{kind}:{index}"
        case {"type": Text(kind)}:
            return kind
    return None


def is_device(text: str) -> bool:
    """Return whether a text has the form of a device of torch: ``cpu``, ``cuda:1``."""
    return _DEVICE.fullmatch(text) is not None


def device_pair(text: str) -> tuple[str, str]:
    """Return the two devices of ``cuda=cpu``; ValueError if it has another form."""
    old, _, new = text.partition("=")
    if not is_device(old) or not is_device(new):
        raise ValueError(f"{text!r} is not of the form cuda=cpu")
    return old, new
