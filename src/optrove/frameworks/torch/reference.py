"""Compare the results of an operation of torch with those of the same operation in float64.

The reference is computed by torch itself on the CPU, from the same numbers: in float64, or in
float32 or the recorded dtypes if the operation does not support float64. A result is close if
every element is, by a tolerance that depends on its dtype and on the size of the numbers. Where
numbers cancel out, an element may also differ as much as it does if the inputs change by a small
part of the tolerance. Whole numbers and truth values have to be equal to the reference in float64
or in the recorded dtypes.
"""

from __future__ import annotations

import io
import logging
import os
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.executor import Compared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_LOG: Final = logging.getLogger(__name__)

TOLERANCES: Final = {
    "torch.float64": 1e-9,
    "torch.complex128": 1e-9,
    "torch.float32": 1e-4,
    "torch.complex64": 1e-4,
    "torch.float16": 1e-2,
    "torch.complex32": 1e-2,
    "torch.bfloat16": 6e-2,
}
"""How much an element may differ, relative to itself and to the root mean square of all."""

_COARSE: Final = 0.3
"""The tolerance of dtypes with fewer bits."""

NOISE: Final = 1 / 16
"""How much inputs are changed to see how far the results move, as a part of the tolerance."""

_TRIALS: Final = 3
"""How often; an element that one change does not move is moved by another."""

_FLUSHED: Final = 1e-30
"""Dtypes whose normal numbers begin below it have the range of float32 or more."""

RANGE_DEPENDENT: Final = frozenset({"nan_to_num", "nan_to_num_"})
"""Operations whose results depend on the range of the dtype: float64 is no reference for them."""

UNINITIALIZED: Final = frozenset(
    {
        "empty", "empty_like", "empty_strided", "empty_permuted", "empty_quantized", "new_empty",
        "new_empty_strided", "resize_", "resize_as_", "resize", "set_", "_empty_affine_quantized",
        "_ctc_loss", "mkldnn_rnn_layer",
    }
)  # fmt: skip
"""Operations whose results hold, in whole or in part, whatever was in memory."""

DATA_DEPENDENT: Final = frozenset(
    {
        "__bool__", "__complex__", "__float__", "__index__", "__int__", "allclose", "argwhere",
        "bincount", "bool", "equal", "is_nonzero", "item", "masked_select", "nonzero",
        "repeat_interleave", "tolist", "unique", "unique_consecutive", "unique_dim", "_unique2",
        "_local_scalar_dense", "nonzero_static", "nms", "_pack_padded_sequence",
    }
)  # fmt: skip
"""Functions whose outputs depend on the values of their inputs, besides those that torch tags."""


NOT_UNIQUE: Final = {
    "linalg_eig": (1,),
    "linalg_eigh": (1,),
    "_linalg_eigh": (1,),
    "linalg_svd": (0, 2),
    "_linalg_svd": (0, 2),
    "svd": (0, 2),
}
"""The outputs of operations that are vectors of which each may have another sign or factor."""

INDEXING: Final = frozenset({"index", "_unsafe_index"})
"""Operations whose outputs depend on values only if they are indexed by a mask."""


def last_name(op: str) -> str:
    """Return the name of an operation without its overload: ``addmm``."""
    parts = op.split(".")
    return parts[3] if op.startswith("torch.ops.") and len(parts) > 3 else parts[-1]  # noqa: PLR2004 - torch.ops.aten.addmm


def wide_dtypes(torch: Any, dtype: Any) -> Mapping[Any, Any]:
    """Return which dtype takes the place of which: ``dtype`` of all floats, or none."""
    if dtype is None:
        return {}
    every = [each for each in vars(torch).values() if isinstance(each, torch.dtype)]
    wide_complex = torch.complex128 if dtype is torch.float64 else torch.complex64
    return {
        **{each: dtype for each in every if each.is_floating_point},
        **{each: wide_complex for each in every if each.is_complex},
    }


def tensors_in(torch: Any, live: Any) -> Iterator[Any]:
    """Yield the tensors of a result, in order."""
    if isinstance(live, torch.Tensor):
        yield live
    elif isinstance(live, (list, tuple)):
        for item in live:
            yield from tensors_in(torch, item)
    elif isinstance(live, dict):
        for item in live.values():
            yield from tensors_in(torch, item)


NOT_RANDOM_IF: Final = {"dropout_p": 0, "p": 0, "train": False, "training": False}
"""Arguments with which operations that can draw random numbers, such as attention, draw none."""


@dataclass(frozen=True, slots=True)
class Noise:
    """A random change of inputs, by about ``size`` times each number; equal for equal seeds."""

    size: float
    seed: int


class References:
    """The reference results of one call, each kind computed when it is first needed.

    ``run`` computes them with other dtypes in the place of the recorded ones, and returns a list
    of tensors. Its second argument is the noise that it adds to the inputs.
    """

    def __init__(
        self,
        torch: Any,
        run: Callable[[Mapping[Any, Any], Noise | None], list[Any]],
        *,
        independent: bool,
        range_dependent: bool = False,
    ) -> None:
        """Compute with ``run``; ``independent`` if the call itself ran in another way.

        ``range_dependent`` if only the recorded dtypes give the right results.
        """
        self.independent = independent
        self._wide = () if range_dependent else (torch.float64, torch.float32)
        self._torch = torch
        self._run = run
        self._found: dict[Any, list[Any] | str] = {}

    def wide(self) -> list[Any] | str:
        """Return the results in the widest dtype that the operation supports, or why none."""
        return self._results(self._widest())

    def spread(self, number: int, tolerance: float) -> Any:
        """Return how far each element of an output moves if the inputs change a little.

        None if that is unknown: the operation supports no wider dtype, or not such inputs.
        """
        dtype = self._widest()
        results = self._results(dtype)
        if dtype is None or isinstance(results, str):
            return None
        expected, found = results[number], None
        for seed in range(_TRIALS):
            noise = Noise(tolerance * NOISE, seed)
            try:
                moved = self._run(wide_dtypes(self._torch, dtype), noise)[number]
            except Exception as error:  # noqa: BLE001 - as in _results; the plain tolerance decides then
                _LOG.debug("no noise for the inputs: %s", error)
                return None
            if moved.shape != expected.shape or moved.layout is not self._torch.strided:
                return None
            change = self._torch.nan_to_num(_pairs(self._torch, moved - expected).abs())
            found = change if found is None else self._torch.maximum(found, change)
        return found

    def _widest(self) -> Any:
        """Return the widest dtype that the operation supports, None for the recorded ones."""
        return next((d for d in self._wide if not isinstance(self._results(d), str)), None)

    def same(self) -> list[Any] | str:
        """Return the results in the recorded dtypes, or why they cannot be computed."""
        return self._results(None)

    def _results(self, dtype: Any) -> list[Any] | str:
        if dtype not in self._found:
            try:
                self._found[dtype] = self._run(wide_dtypes(self._torch, dtype), None)
            except Exception as error:  # noqa: BLE001 - torch may refuse a dtype in any way; the text is the reason
                self._found[dtype] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        return self._found[dtype]


class ReferenceComparison:
    """Compares the results of calls with their references."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def compare(self, actual: list[Any], references: References) -> tuple[Compared, ...]:
        """Return each tensor of a result with the expected one."""
        return tuple(
            self._compare(number, tensor, references) for number, tensor in enumerate(actual)
        )

    def _compare(self, number: int, tensor: Any, references: References) -> Compared:
        if tensor.device.type == "meta":
            return Compared(number, lacking="tensors on the meta device have no numbers")
        expected = _of(references.wide(), number)
        if isinstance(expected, str):
            return Compared(number, lacking=f"there is no reference on the CPU: {expected}")
        actual, expected = self._plain(tensor), self._plain(expected)
        if expected.shape != actual.shape:
            # It depends on the dtype, as that of ``view(dtype)`` does, or on values.
            expected = _of(references.same(), number)
            expected = expected if isinstance(expected, str) else self._plain(expected)
        if isinstance(expected, str) or expected.shape != actual.shape:
            return Compared(number, lacking="the reference has another shape")
        if tensor.is_quantized:
            # A number between two steps may be rounded to either.
            return Compared(number, expected, actual, expected, tolerance=_COARSE)
        if actual.dtype.is_floating_point or actual.dtype.is_complex:
            return self._floats(number, actual, expected, references)
        return self._exact(number, actual, expected, references)

    def _plain(self, tensor: Any) -> Any:
        """Return the numbers of a tensor as a dense one on the CPU."""
        live = tensor.detach()
        if live.is_nested:
            parts = [self._plain(each).flatten() for each in live.unbind()]
            return self._torch.cat(parts) if parts else self._torch.empty(0)
        if live.is_quantized:
            live = live.dequantize()
        if live.layout is not self._torch.strided:
            live = live.to_dense()
        return live.cpu().resolve_conj().resolve_neg()

    def _floats(self, number: int, actual: Any, expected: Any, references: References) -> Compared:
        tolerance = TOLERANCES.get(str(actual.dtype), _COARSE)
        if actual.dtype.is_complex:
            expected = expected.to(self._torch.complex128)
        actual, expected = _pairs(self._torch, actual), _pairs(self._torch, expected)
        rounded = expected.to(actual.dtype)
        # A number beyond the range of the dtype is infinite there, and no fault.
        expected = self._torch.where(rounded.isfinite(), expected, rounded.to(expected.dtype))
        smallest = _smallest(self._torch, actual.dtype)
        compared = Compared(number, expected, actual, rounded, tolerance=tolerance, slack=smallest)
        if is_close(compared):
            return compared
        # Steps of the operation, such as floor, may differ in float64.
        same = _of(references.same(), number)
        # Complex numbers are pairs by now.
        comparable = not isinstance(same, str) and same.shape == actual.shape
        if references.independent and comparable and same.dtype == actual.dtype:
            alike = Compared(number, same, actual, same, tolerance=tolerance)
            if is_close(alike):
                return alike
        spread = references.spread(number, tolerance)
        return compared if spread is None else replace(compared, slack=smallest + spread)

    def _exact(self, number: int, actual: Any, expected: Any, references: References) -> Compared:
        wide = expected.to(actual.dtype)
        if self._torch.equal(wide, actual):
            return Compared(number, wide, actual, exact=True)
        same = _of(references.same(), number)
        if isinstance(same, str) or same.shape != actual.shape:
            return Compared(number, wide, actual, exact=True)
        return Compared(number, same, actual, exact=True)


def _pairs(torch: Any, live: Any) -> Any:
    """Return complex numbers as pairs, and others as they are."""
    return torch.view_as_real(live) if live.dtype.is_complex else live


def _smallest(torch: Any, dtype: Any) -> float:
    """Return the size below which numbers of a dtype are rounded to others, or to zero."""
    info = torch.finfo(dtype)
    step = float(info.smallest_normal * info.eps)
    # With a wide range, kernels may flush what is smaller than the normal numbers.
    return float(info.smallest_normal) if info.smallest_normal < _FLUSHED else step


def _of(results: list[Any] | str, number: int) -> Any:
    if isinstance(results, str):
        return results
    return results[number] if number < len(results) else "it has fewer results"


def is_close(compared: Compared) -> bool:
    """Return whether each element of a result is as near to the expected one as its dtype allows.

    NaN and infinities have to be the same.
    """
    expected, actual = compared.expected, compared.actual
    wide = actual.to(expected.dtype)
    finite = expected.isfinite()
    others = ~finite
    if bool((wide[others].isnan() != expected[others].isnan()).any()):
        return False
    known = others & ~expected.isnan()
    if bool((wide[known] != expected[known]).any()):
        return False
    numbers, found = expected[finite], wide[finite]
    if numbers.numel() == 0:
        return True
    size = float(numbers.abs().square().mean().sqrt())
    bound = (compared.tolerance or 0.0) * (expected.abs() + size) + compared.slack
    return bool(((found - numbers).abs() <= bound[finite]).all())


class ReferenceProcess:
    """A copy of this process that computes references without the modules that come later.

    An imported module may replace kernels of the CPU. So the process is forked before the import,
    and ``compute`` runs there: it gets the arguments of ``results`` and returns a list of tensors.
    """

    def __init__(self, torch: Any, compute: Callable[..., list[Any]]) -> None:
        self._torch = torch
        ours, theirs = Pipe()
        self._process = os.fork()
        if self._process == 0:
            ours.close()
            try:
                self._serve(theirs, compute)
            finally:
                os._exit(0)
        theirs.close()
        self._connection = ours

    def results(self, *arguments: Any) -> list[Any]:
        """Return the tensors that ``compute`` returns there; ReferenceError if it raises."""
        self._connection.send(arguments)
        fault, content = self._connection.recv()
        if fault is not None:
            raise ReferenceError(fault)
        found: list[Any] = self._torch.load(io.BytesIO(content), weights_only=True)
        return found

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        os.waitpid(self._process, 0)

    def _serve(self, connection: Any, compute: Callable[..., list[Any]]) -> None:
        while True:
            try:
                arguments = connection.recv()
            except EOFError:
                return
            fault, content = None, io.BytesIO()
            try:
                self._torch.save(compute(*arguments), content)
            except Exception as error:  # noqa: BLE001 - the text goes to the other process
                fault = f"{type(error).__name__}: {error}"
            connection.send((fault, content.getvalue()))
