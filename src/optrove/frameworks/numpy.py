"""Converters for numpy: arrays, dtypes and scalars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optrove.model.values import Float, NumpyPlacement, TensorSpec
from optrove.serializer.tables import (
    Converter,
    ConverterTable,
    Describing,
    Fields,
    StructConverter,
    SymbolConverter,
    TensorConverter,
)

if TYPE_CHECKING:
    from types import ModuleType

# Scalars whose value a Python scalar can represent. Not longdouble, which a float would round.
_SCALARS = (
    *("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("longlong", "ulonglong", "float16", "float32", "float64", "complex64", "complex128"),
)


def table() -> ConverterTable:
    """Import numpy and return its converters."""
    import numpy as np

    return ConverterTable("numpy", (*_scalars(np), *_dtypes(np), _array(np)))


def _scalars(np: ModuleType) -> list[Converter]:
    # On some systems two of the names are one class; the first name counts.
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
    """Return one converter per class of dtype; in numpy each dtype has its own class."""
    found: dict[type, dict[str, Any]] = {}
    names: set[str] = set()
    for scalar in _SCALARS:
        dtype = np.dtype(getattr(np, scalar))
        if type(dtype) in found:
            continue
        # longlong and int64 are two classes on Linux, and both have the name int64.
        name = scalar if dtype.name in names else dtype.name
        names.add(name)
        swapped = dtype.newbyteorder()
        both = {name: dtype, swapped.str: swapped}
        found[type(dtype)] = both if swapped.str != dtype.str else {name: dtype}
    return [_dtype(kind, members) for kind, members in found.items()]


def _dtype(kind: type, members: dict[str, Any]) -> Converter:
    native = next(iter(members))

    def name_of(live: Any) -> str:
        name: str = native if live.isnative else live.str
        if name not in members or live.names is not None:
            raise LookupError(name)
        return name

    return SymbolConverter(f"numpy.dtype.{native}", kind, members, name_of)


def _array(np: ModuleType) -> Converter:
    def spec(live: Any, session: Describing, identity: int, storage: int) -> TensorSpec:  # noqa: ARG001 - the signature of TensorConverter.spec
        return TensorSpec(
            shape=tuple(live.shape),
            dtype=f"numpy.{_array_dtype(live.dtype)}",
            placement=NumpyPlacement(tuple(live.strides), _offset(np, live)),
            identity=identity,
            storage=storage,
        )

    def storage(live: Any) -> int:
        return id(_owner(np, live)[1])

    return TensorConverter("numpy.ndarray", np.ndarray, spec, storage=storage)


def _owner(np: ModuleType, live: Any) -> tuple[Any, Any]:
    """Return the first array of a chain of views, and the owner of its memory."""
    array = live
    while isinstance(array.base, np.ndarray):
        array = array.base
    owner = array if array.base is None else array.base
    # Each array over a buffer has its own memoryview in between.
    return array, owner.obj if type(owner) is memoryview else owner


def _offset(np: ModuleType, live: Any) -> int:
    """Return the offset of an array from the start of its memory, in bytes."""
    if live.base is None:
        return 0
    array, owner = _owner(np, live)
    if type(owner) in (bytes, bytearray):
        array = np.frombuffer(owner, np.uint8)
    return _address(live) - _address(array)


def _address(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _array_dtype(dtype: Any) -> str:
    """Return the name of a dtype; arrays of objects or records are not tensors."""
    if dtype.hasobject or dtype.names is not None:
        raise TypeError(f"an array of {dtype.kind!r} is not a tensor")
    name: str = dtype.name if dtype.isnative else dtype.str
    return name
