"""Turn tensors, arrays, lists and scalars into rows of float64 that metrics compute on.

Torch and ttnn tensors are computed on by torch, all else by numpy where it is loaded, and by
plain Python where not: no framework is imported here (``ttnn.to_torch`` imports torch itself).
Whole numbers beyond 2**53 are taken as the float64 nearest to them.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from optrove.errors import FrameworkMissing, NotComparable
from optrove.metrics import rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


@dataclass(frozen=True, slots=True)
class Precision:
    """Which numbers a dtype holds: its bits of fraction, the exponent of its least normal one."""

    fraction_bits: int
    least_exponent: int


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What is computed on rows of one kind beyond operators and methods.

    ``with_zeros`` puts a zero behind each number; ``quiet`` holds back warnings about overflow.
    """

    isfinite: Callable[[Any], Any]
    isnan: Callable[[Any], Any]
    where: Callable[[Any, Any, Any], Any]
    hypot: Callable[[Any, Any], Any]
    frexp: Callable[[Any], tuple[Any, Any]]
    with_zeros: Callable[[Any], Any]
    quiet: Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of a tensor, in one row of float64.

    A complex number is two of them, its real and its imaginary part. ``precision`` is None for
    whole numbers and truth values.
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
    """Return the numbers of two things in rows of one kind, and what computes on them."""
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
        first, second, arithmetic = _by_rows(expected), _by_rows(actual), _ROWS
    if first.is_complex != second.is_complex:
        first, second = _as_complex(first, arithmetic), _as_complex(second, arithmetic)
    return first, second, arithmetic


def _as_complex(numbers: Numbers, arithmetic: Arithmetic) -> Numbers:
    if numbers.is_complex:
        return numbers
    row = arithmetic.with_zeros(numbers.row)
    return replace(numbers, is_complex=True, row=row)


def _torch_for_ttnn() -> ModuleType:
    from importlib import import_module

    try:
        return import_module("torch")
    except ImportError as error:
        raise FrameworkMissing(
            "ttnn tensors are compared by way of torch, which is not installed; "
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
        row = torch.view_as_real(tensor.resolve_conj().to(torch.complex128)).reshape(-1)
    else:
        row = tensor.to(torch.float64).reshape(-1)
    floats = is_complex or tensor.dtype.is_floating_point
    precision = (block or _PRECISIONS.get(dtype, _DOUBLE)) if floats else None
    return Numbers(tuple(tensor.shape), f"torch.{dtype}", precision, is_complex, row)


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
        raise NotComparable(f"cannot compare what holds no float64 numbers: {error}") from error
    kind = "complex" if is_complex else "int" if whole else "float"
    return Numbers(shape, kind, None if whole else _DOUBLE, is_complex, rows.Row(floats))


def _gather(thing: Any, items: list[Any]) -> tuple[int, ...]:
    """Append the innermost things of nested lists to ``items``; return their common shape."""
    if isinstance(thing, str | bytes) or thing is None:
        raise NotComparable(
            f"{thing!r} is no number; compare tensors, arrays, lists of numbers or numbers"
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

    return Arithmetic(
        torch.isfinite, torch.isnan, torch.where, torch.hypot, frexp, with_zeros, nullcontext
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

    return Arithmetic(
        numpy.isfinite, numpy.isnan, numpy.where, numpy.hypot, frexp, with_zeros, quiet
    )


_ROWS = Arithmetic(
    rows.isfinite,
    rows.isnan,
    rows.where,
    rows.hypot,
    rows.frexp,
    rows.with_zeros,
    nullcontext,
)
