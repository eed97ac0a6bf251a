"""Compute the reference results of an operation of torch, and judge its own by them.

The reference is computed by torch itself on the CPU, from the same numbers: in float64, or in
float32 or the recorded dtypes if the operation does not support float64. Each element of a result
may be off by a few units of the last place, and by a few times as much as the reference moves if
its inputs are moved by half a unit (``optrove.portable.judging``). Whole numbers and truth values
have to be equal to the reference in float64 or in the recorded dtypes.

torch's own kernels on the CPU are not all that exact. Where the one in the recorded dtypes is
further off, the bound is wider, with a note; a result that equals it bit for bit is torch's own,
and only has to be close as a whole.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_LOG: Final = logging.getLogger(__name__)

_TRIALS: Final = 24
_TRIAL_SECONDS: Final = 2.0
"""How often inputs are moved at most, and for how long; often only if a function has steps."""

RANGE_DEPENDENT: Final = frozenset(
    {"fractional_max_pool2d", "fractional_max_pool3d", "nan_to_num", "nan_to_num_"}
)
"""Operations that choose by the range or the digits of a dtype: float64 is no reference."""

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

TIES: Final = frozenset({"kthvalue", "median", "mode", "nanmedian", "sort", "topk"})
"""Operations whose second output may name any of several equal elements."""

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
    """A random move of inputs by half a unit of a dtype; equal for equal seeds."""

    dtype: Any
    seed: int


class References:
    """The reference results of one call, each kind computed when it is first needed.

    ``run`` computes them with other dtypes in the place of the recorded ones, and returns a list
    of tensors. Its second argument is the noise of the inputs.
    """

    def __init__(
        self,
        torch: Any,
        run: Callable[[Mapping[Any, Any], Noise | None], list[Any]],
        *,
        finest: Any = None,
        terms: int = 1,
        range_dependent: bool = False,
    ) -> None:
        """Compute with ``run``, which sums up to ``terms`` numbers, the finest of this dtype.

        ``range_dependent`` if only the recorded dtypes give the right results.
        """
        self.terms, self.finest = terms, finest
        self._wide = () if range_dependent else (torch.float64, torch.float32)
        self._torch = torch
        self._run = run
        self._found: dict[Any, list[Any] | str] = {}

    def wide(self) -> list[Any] | str:
        """Return the results in the widest dtype that the operation supports, or why none."""
        return self._results(self._widest())

    def same(self) -> list[Any] | str:
        """Return the results in the recorded dtypes, or why they cannot be computed."""
        return self._results(None)

    def moves(self, number: int, *, wide: bool = True) -> Iterator[Any]:
        """Yield an output for inputs that are moved, in the widest dtype or the recorded ones.

        Nothing if that is impossible: the operation does not support such inputs.
        """
        dtype = self._widest() if wide else None
        if self.finest is None or (wide and dtype is None):
            return
        ends = time.monotonic() + _TRIAL_SECONDS
        for seed in range(_TRIALS):
            try:
                moved = self._run(wide_dtypes(self._torch, dtype), Noise(self.finest, seed))[number]
            except Exception as error:  # noqa: BLE001 - as in _results; the bound without moves decides
                _LOG.debug("no noise for the inputs: %s", error)
                return
            yield moved
            if time.monotonic() > ends:
                return

    def _widest(self) -> Any:
        """Return the widest dtype that the operation supports, None for the recorded ones."""
        return next((d for d in self._wide if not isinstance(self._results(d), str)), None)

    def _results(self, dtype: Any) -> list[Any] | str:
        if dtype not in self._found:
            try:
                self._found[dtype] = self._run(wide_dtypes(self._torch, dtype), None)
            except Exception as error:  # noqa: BLE001 - torch may refuse a dtype in any way; the text is the reason
                self._found[dtype] = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        return self._found[dtype]
