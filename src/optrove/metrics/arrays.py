"""Turn tensors, arrays, lists and scalars into rows of numbers for the metrics.

A row keeps the dtype of its tensor; ``Arithmetic.widened`` returns a part of it as float64, so that
large tensors are never copied as a whole.

Torch computes on rows of torch and ttnn tensors, numpy on all others if it is loaded, and plain
Python if it is not: no framework is imported here (``ttnn.to_torch`` imports torch itself).
Whole numbers beyond 2**53 are rounded to the nearest float64.
"""

from __future__ import annotations

import math
import operator
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from optrove.errors import FrameworkMissing, NotComparable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType


@dataclass(frozen=True, slots=True)
class Precision:
    """The numbers of a dtype: its bits of fraction, the exponent of its least normal number."""

    fraction_bits: int
    least_exponent: int


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The functions on rows of one kind; rows also have operators and methods.

    ``widened`` returns a row of any dtype as float64, ``with_zeros`` puts a zero behind each
    number, ``quiet`` suppresses warnings about overflow.
    """

    widened: Callable[[Any], Any]
    isfinite: Callable[[Any], Any]
    isnan: Callable[[Any], Any]
    where: Callable[[Any, Any, Any], Any]
    hypot: Callable[[Any, Any], Any]
    frexp: Callable[[Any], tuple[Any, Any]]
    with_zeros: Callable[[Any], Any]
    quiet: Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of a tensor, in one row of its own dtype.

    A complex number takes two places, for its real and its imaginary part. ``precision`` is None
    for whole numbers and truth values.
    """

    shape: tuple[int, ...]
    dtype: str
    precision: Precision | None
    is_complex: bool
    row: Any


_DOUBLE = Precision(52, -1022)
_PRECISIONS = {
    "float64": _DOUBLE,
    "complex128": _DOUBLE,
    "float32": Precision(23, -126),
    "complex64": Precision(23, -126),
    "float16": Precision(10, -14),
    "complex32": Precision(10, -14),
    "bfloat16": Precision(7, -126),
    "float8_e4m3fn": Precision(3, -6),
    "float8_e5m2": Precision(2, -14),
    "float8_e4m3fnuz": Precision(3, -7),
    "float8_e5m2fnuz": Precision(2, -15),
    "float8_e8m0fnu": Precision(0, -127),
}
# Blocks of ttnn that share an exponent: read as float32, but no finer than their own fractions.
_BLOCK_PRECISIONS = {"BFLOAT8_B": Precision(7, -126), "BFLOAT4_B": Precision(3, -126)}


def numbers_of_both(expected: Any, actual: Any) -> tuple[Numbers, Numbers, Arithmetic]:
    """Return the numbers of both in rows of one kind, and the arithmetic of that kind."""
    both = (expected, actual)
    torch, numpy = _loaded("torch"), _loaded("numpy")
    if _loaded("ttnn") and any(_is(thing, "ttnn", "Tensor") for thing in both):
        torch = _torch_for_ttnn()
    elif not any(_is(thing, "torch", "Tensor") for thing in both):
        torch = None
    if torch is not None:
        first, second = _by_torch(torch, expected), _by_torch(torch, actual)
        arithmetic = _torch_arithmetic(torch)
    elif numpy is not None:
        first, second = _by_numpy(numpy, expected), _by_numpy(numpy, actual)
        arithmetic = _numpy_arithmetic(numpy)
    else:
        first, second, arithmetic = _by_rows(expected), _by_rows(actual), _ROW_ARITHMETIC
    if first.is_complex != second.is_complex:
        first, second = _as_complex(first, arithmetic), _as_complex(second, arithmetic)
    return first, second, arithmetic


def _as_complex(numbers: Numbers, arithmetic: Arithmetic) -> Numbers:
    if numbers.is_complex:
        return numbers
    row = arithmetic.with_zeros(arithmetic.widened(numbers.row))
    return replace(numbers, is_complex=True, row=row)


def _torch_for_ttnn() -> ModuleType:
    from importlib import import_module

    try:
        return import_module("torch")
    except ImportError as error:
        raise FrameworkMissing(
            "ttnn tensors are compared with torch, which is not installed; "
            "install it with pip install 'optrove[torch]'"
        ) from error


def _loaded(name: str) -> ModuleType | None:
    return sys.modules.get(name)


def _is(thing: Any, framework: str, name: str) -> bool:
    kind = getattr(_loaded(framework), name, None)
    return isinstance(kind, type) and isinstance(thing, kind)


def _by_torch(torch: Any, thing: Any) -> Numbers:
    block = None
    if _is(thing, "ttnn", "Tensor"):
        block = _BLOCK_PRECISIONS.get(thing.dtype.name)
        thing = sys.modules["ttnn"].to_torch(thing)
    elif _is(thing, "numpy", "ndarray") or _is(thing, "numpy", "generic"):
        numbers = _by_numpy(_loaded("numpy"), thing)
        return replace(numbers, row=torch.tensor(numbers.row, dtype=torch.float64))
    elif not isinstance(thing, torch.Tensor):
        numbers = _by_rows(thing)
        return replace(numbers, row=torch.tensor(list(numbers.row), dtype=torch.float64))
    tensor = thing.detach().cpu()
    dtype = str(tensor.dtype).removeprefix("torch.")
    is_complex = tensor.dtype.is_complex
    if is_complex:
        tensor = torch.view_as_real(tensor.resolve_conj().resolve_neg())
    row = tensor.reshape(-1)
    floats = is_complex or tensor.dtype.is_floating_point
    precision = (block or _PRECISIONS.get(dtype, _DOUBLE)) if floats else None
    return Numbers(tuple(thing.shape), f"torch.{dtype}", precision, is_complex, row)


def _by_numpy(numpy: Any, thing: Any) -> Numbers:
    if not isinstance(thing, numpy.ndarray | numpy.generic):
        numbers = _by_rows(thing)
        return replace(numbers, row=numpy.array(list(numbers.row), dtype=numpy.float64))
    array = numpy.asarray(thing)
    is_complex = array.dtype.kind == "c"
    try:
        if is_complex:
            row = numpy.ascontiguousarray(array, dtype=numpy.complex128).reshape(-1)
            row = row.view(numpy.float64)
        else:
            row = array.astype(numpy.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise NotComparable(f"an array of {array.dtype} holds no numbers: {error}") from error
    precision = None if array.dtype.kind in "biu" else _PRECISIONS.get(array.dtype.name, _DOUBLE)
    return Numbers(array.shape, f"numpy.{array.dtype.name}", precision, is_complex, row)


def _by_rows(thing: Any) -> Numbers:
    items: list[Any] = []
    shape = _gather(thing, items)
    is_complex = any(isinstance(item, complex) for item in items)
    whole = all(isinstance(item, int) for item in items) and bool(items)
    try:
        if is_complex:
            numbers = [complex(item) for item in items]
            floats = [part for number in numbers for part in (number.real, number.imag)]
        else:
            floats = [float(item) for item in items]
    except (TypeError, ValueError, OverflowError) as error:
        raise NotComparable(f"only float64 numbers can be compared: {error}") from error
    kind = "complex" if is_complex else "int" if whole else "float"
    return Numbers(shape, kind, None if whole else _DOUBLE, is_complex, Row(floats))


def _gather(thing: Any, items: list[Any]) -> tuple[int, ...]:
    """Append the innermost items of nested lists to ``items``; return their common shape."""
    if isinstance(thing, str | bytes) or thing is None:
        raise NotComparable(
            f"{thing!r} is not a number; compare tensors, arrays, lists of numbers or numbers"
        )
    if not isinstance(thing, list | tuple):
        items.append(thing)
        return ()
    shapes = {_gather(part, items) for part in thing}
    if len(shapes) > 1:
        raise NotComparable(f"the parts of a list have different shapes: {sorted(shapes)}")
    return (len(thing), *(shapes.pop() if shapes else ()))


def _torch_arithmetic(torch: Any) -> Arithmetic:
    def frexp(row: Any) -> tuple[Any, Any]:
        mantissas, exponents = torch.frexp(row)
        return mantissas, exponents.to(torch.float64)

    def with_zeros(row: Any) -> Any:
        return torch.stack((row, torch.zeros_like(row)), dim=1).reshape(-1)

    def widened(row: Any) -> Any:
        return row.to(torch.float64)

    return Arithmetic(
        widened,
        torch.isfinite,
        torch.isnan,
        torch.where,
        torch.hypot,
        frexp,
        with_zeros,
        nullcontext,
    )


def _numpy_arithmetic(numpy: Any) -> Arithmetic:
    def quiet() -> AbstractContextManager[Any]:
        state: AbstractContextManager[Any] = numpy.errstate(all="ignore")
        return state

    def frexp(row: Any) -> tuple[Any, Any]:
        mantissas, exponents = numpy.frexp(row)
        return mantissas, exponents.astype(numpy.float64)

    def with_zeros(row: Any) -> Any:
        return numpy.stack((row, numpy.zeros_like(row)), axis=1).reshape(-1)

    def widened(row: Any) -> Any:
        return row.astype(numpy.float64)

    return Arithmetic(
        widened, numpy.isfinite, numpy.isnan, numpy.where, numpy.hypot, frexp, with_zeros, quiet
    )


def _elementwise(combine: Callable[[Any, Any], Any]) -> Any:
    """Return a method that combines a row with another row or with one number."""

    def method(self: Row, other: Any) -> Row:
        if isinstance(other, Row):
            return Row(map(combine, self, other))
        return Row(combine(item, other) for item in self)

    return method


class Row:
    """Numbers or truth values where neither numpy nor torch is loaded.

    It has the part of their arrays' interface that the metrics use.
    """

    __slots__ = ("_items",)
    __hash__ = None  # type: ignore[assignment]  # two rows compare to a row, as arrays do

    def __init__(self, items: Iterable[Any]) -> None:
        self._items = tuple(items)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __getitem__(self, which: slice | Row) -> Row:
        if isinstance(which, slice):
            return Row(self._items[which])
        return Row(item for item, wanted in zip(self, which, strict=True) if wanted)

    __add__ = __radd__ = _elementwise(operator.add)
    __sub__ = _elementwise(operator.sub)
    __mul__ = __rmul__ = _elementwise(operator.mul)
    __truediv__ = _elementwise(operator.truediv)
    __eq__ = _elementwise(operator.eq)
    __ne__ = _elementwise(operator.ne)
    __lt__ = _elementwise(operator.lt)
    __le__ = _elementwise(operator.le)
    __and__ = _elementwise(operator.and_)
    __or__ = _elementwise(operator.or_)

    def __rpow__(self, base: float) -> Row:
        return Row(base**item for item in self)

    def __matmul__(self, other: Row) -> float:
        return math.fsum(self * other)

    def __abs__(self) -> Row:
        return Row(map(abs, self))

    def __invert__(self) -> Row:
        return Row(not item for item in self)

    def all(self) -> bool:
        """Return whether all items are true."""
        return all(self)

    def any(self) -> bool:
        """Return whether any item is true."""
        return any(self)

    def max(self) -> float:
        """Return the largest number."""
        return float(max(self))

    def sum(self) -> float:
        """Return the sum, rounded once."""
        return math.fsum(self)


def _row_where(condition: Row, row: Row | float, other: Row | float) -> Row:
    first = row if isinstance(row, Row) else [row] * len(condition)
    second = other if isinstance(other, Row) else [other] * len(condition)
    chosen = zip(condition, first, second, strict=True)
    return Row(one if holds else two for holds, one, two in chosen)


def _row_frexp(row: Row) -> tuple[Row, Row]:
    parts = [math.frexp(item) for item in row]
    return Row(part[0] for part in parts), Row(float(part[1]) for part in parts)


_ROW_ARITHMETIC = Arithmetic(
    widened=lambda row: row,
    isfinite=lambda row: Row(map(math.isfinite, row)),
    isnan=lambda row: Row(map(math.isnan, row)),
    where=_row_where,
    hypot=lambda row, other: Row(map(math.hypot, row, other)),
    frexp=_row_frexp,
    with_zeros=lambda row: Row(part for item in row for part in (item, 0.0)),
    quiet=nullcontext,
)
