"""Converters for numpy: arrays, dtypes and scalars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optrove.backends.base import (
    Converter,
    ConverterTable,
    Describing,
    Fields,
    StructConverter,
    SymbolConverter,
    TensorConverter,
)
from optrove.model.values import Float, NumpyPlacement, TensorSpec

if TYPE_CHECKING:
    from types import ModuleType

# Those whose value a Python scalar holds exactly. Not longdouble, which a float would round.
_SCALARS = (
    *("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("longlong", "ulonglong", "float16", "float32", "float64", "complex64", "complex128"),
)


def table() -> ConverterTable:
    """Return the converters of numpy, which this imports."""
    import numpy as np

    return ConverterTable("numpy", (*_scalars(np), *_dtypes(np), _array(np)))


def _scalars(np: ModuleType) -> list[Converter]:
    # On some systems two of the names are one class; the first name stands for both.
    kinds: dict[type, str] = {}
    for name in _SCALARS:
        kinds.setdefault(getattr(np, name), name)
    return [_scalar(np, kind, name) for kind, name in kinds.items()]


def _scalar(np: ModuleType, kind: Any, name: str) -> Converter:
    python_type = type(kind().item())

    def make(fields: Fields) -> Any:
        value = fields["value"]
        # numpy would parse strings, turn lists into arrays, and wrap or round other numbers.
        if type(value) is not python_type:
            raise TypeError(f"expected a {python_type.__name__} as value")
        if python_type is int and not np.iinfo(kind).min <= value <= np.iinfo(kind).max:
            raise ValueError(f"{value} is out of range")
        with np.errstate(all="ignore"):
            live = kind(value)
        # By bits, so that every NaN is the one NaN.
        if python_type in (float, complex) and _bits(live.item()) != _bits(value):
            raise ValueError(f"{value} has no exact form")
        return live

    return StructConverter(
        name=f"numpy.{name}",
        type=kind,
        fields=lambda live: {"value": live.item()},
        make=make,
        names=("value",),
    )


def _bits(number: complex) -> tuple[bytes, bytes]:
    return Float(number.real).bits(), Float(number.imag).bits()


def _dtypes(np: ModuleType) -> list[Converter]:
    """Return one converter per class of dtype; in numpy each dtype is a class of its own."""
    found: dict[type, dict[str, Any]] = {}
    for name in _SCALARS:
        dtype = np.dtype(getattr(np, name))
        found.setdefault(type(dtype), {}).setdefault(dtype.name, dtype)
        swapped = dtype.newbyteorder()
        if swapped.str != dtype.str:
            found[type(dtype)][swapped.str] = swapped
    names: dict[str, type] = {}
    converters: list[Converter] = []
    for kind, members in found.items():
        first = next(iter(members))
        # longlong and int64 are two classes with one name on Linux.
        if first in names:
            continue
        names[first] = kind
        converters.append(
            SymbolConverter(f"numpy.dtype.{first}", kind, members, _dtype_name_of(members))
        )
    return converters


def _dtype_name_of(members: dict[str, Any]) -> Any:
    def name_of(live: Any) -> str:
        name: str = live.name if live.isnative else live.str
        if name not in members or live.names is not None:
            raise LookupError(name)
        return name

    return name_of


def _array(np: ModuleType) -> Converter:
    return TensorConverter("numpy.ndarray", np.ndarray, _spec)


def _spec(live: Any, session: Describing, number: int) -> TensorSpec:  # noqa: ARG001 - the signature of TensorConverter.spec
    return TensorSpec(
        shape=tuple(live.shape),
        dtype=f"numpy.{_array_dtype(live.dtype)}",
        placement=NumpyPlacement(tuple(live.strides)),
        identity=number,
    )


def _array_dtype(dtype: Any) -> str:
    """Return the name of a dtype; arrays of objects or records are not tensors."""
    if dtype.hasobject or dtype.names is not None:
        raise TypeError(f"an array of {dtype.kind!r} is not a tensor")
    name: str = dtype.name if dtype.isnative else dtype.str
    return name
