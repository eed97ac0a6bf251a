"""Record repeated operations of the dispatcher in C (``frameworks/_torch_fast_path.c``).

The C code reads the facts of tensors through the stable C interface of libtorch. Three facts have
no function there: the implementation of a tensor, and that object's dispatch keys and storage.
``TensorLayout`` finds where they are stored by looking for values that torch reports in Python, and
checks this with tensors of many kinds. If anything differs, all calls are recorded in Python.
"""

from __future__ import annotations

import ctypes
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.extensions import load_extension
from optrove.frameworks.probe_protocol import CURRENT, MUTED, CachedCase
from optrove.journal.flow import TORCH_NUMBERS, PythonStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType

    from optrove.frameworks.probe_protocol import (
        FastPathState,
        FlowStream,
        Listener,
        ObservedOp,
    )

_LOG: Final = logging.getLogger(__name__)

_FUNCTIONS: Final = (
    "aoti_torch_get_dim",
    "aoti_torch_get_sizes",
    "aoti_torch_get_strides",
    "aoti_torch_get_storage_offset",
    "aoti_torch_get_dtype",
    "aoti_torch_get_device_index",
)
_WORD: Final = 8
_IMPLEMENTATION_WORDS: Final = 24
"""How much of a tensor's implementation is read; no version of torch has had a smaller one."""

_extension: Any = load_extension("_torch_fast_path")


def is_native() -> bool:
    """Return whether the C extension is there."""
    return _extension is not None


class UnknownLayout(Exception):
    """The torch that is loaded stores tensors in another way; never leaves this module."""


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Where a tensor has its implementation, and that its virtual table, keys and storage."""

    implementation: int
    virtual_table: int
    keys: int
    storage: int

    @classmethod
    def of(cls, torch: ModuleType) -> TensorLayout:
        """Find the layout; raise UnknownLayout if a sample disagrees with torch's own."""
        samples = _samples(torch)
        facts = [(_words(each._cdata, _IMPLEMENTATION_WORDS), each) for each in samples]  # noqa: SLF001 - the address has no public name
        size = torch.Tensor.__basicsize__ // _WORD
        return cls(
            _WORD * _place([(_words(id(each), size), each._cdata) for each in samples]),  # noqa: SLF001 - as above
            _only({words[0] for words, _ in facts}),
            _WORD * _place([(words, _keys(torch, each)) for words, each in facts]),
            _WORD * _place([(words, each.untyped_storage()._cdata) for words, each in facts]),  # noqa: SLF001 - as above
        )


def _samples(torch: ModuleType) -> list[Any]:
    """Return tensors that differ in everything that is read."""
    numbers = torch.arange(24.0, device="cpu").reshape(2, 3, 4)
    complex_numbers = torch.ones(3, dtype=torch.complex64, device="cpu")
    with torch.inference_mode():
        inference = torch.ones(2, device="cpu")
    return [
        numbers,
        numbers[1:].transpose(0, 2),
        torch.nn.Parameter(torch.ones(5, device="cpu")),
        torch.ones(2, device="meta"),
        torch.tensor(1, device="cpu"),
        torch.empty(0, 2, device="cpu"),
        complex_numbers,
        complex_numbers.conj(),
        complex_numbers.conj().imag,
        torch.ones((1, 2, 3, 4, 5, 6, 7), dtype=torch.bool, device="cpu"),
        inference,
    ]


def _words(address: int, count: int) -> list[int]:
    return list((ctypes.c_uint64 * count).from_address(address))


def _keys(torch: ModuleType, live: Any) -> int:
    number: int = torch._C._dispatch_keys(live).raw_repr()  # noqa: SLF001 - has no public name
    return number


def _place(facts: Iterable[tuple[list[int], int]]) -> int:
    """Return the only place at which the words of all objects have the expected values."""
    places = [{at for at, word in enumerate(words) if word == value} for words, value in facts]
    return _only(set.intersection(*places))


def _only(found: set[int]) -> int:
    if len(found) != 1:
        raise UnknownLayout(f"{len(found)} places")
    return found.pop()


def flow_stream(listener: Listener) -> FlowStream | None:
    """Return a stream for the flow of torch's tensors; None if it is not recorded."""
    if listener.flow_windows is None:
        return None
    stream: FlowStream = (PythonStream if _extension is None else _extension.Stream)(
        next_window=listener.flow_windows,
        number_of=None,
        buffer_of=_storage,
        first=TORCH_NUMBERS,
        weak=True,
    )
    listener.add_flow(stream)
    return stream


def _storage(live: Any) -> int | None:
    try:
        number: int = live.untyped_storage()._cdata  # noqa: SLF001 - identifies a storage without reading it
    except (NotImplementedError, RuntimeError):  # a sparse tensor, or another without a storage
        return None
    return number


def native_dispatch(
    torch: ModuleType,
    listener: Listener,
    state: FastPathState,
    resolve: Callable[[Any], ObservedOp | None],
    fallback: Callable[..., Any],
    flow: FlowStream | None = None,
) -> Any:
    """Return the ``__torch_dispatch__`` of a mode in C; None if calls have to go to ``fallback``.

    ``resolve`` returns the observed op of an operation; None if it is not recorded.
    """
    if _extension is None:
        return None
    try:
        dispatch = _extension.Dispatch(
            shared=state,
            cached_case=CachedCase,
            current=CURRENT,
            sites=state.sites,
            site_of=listener.site,
            outputs=listener.outputs,
            error=listener.error,
            resolve=resolve,
            fallback=fallback,
            muted=MUTED,
            flow=flow,
            **_facts_of(torch),
        )
        _check(torch, dispatch)
    except (AttributeError, OSError, TypeError, UnknownLayout, ValueError) as error:
        _LOG.warning(
            "torch %s is recorded in Python, which is slower: %s", torch.__version__, error
        )
        return None
    return dispatch


def _facts_of(torch: ModuleType) -> dict[str, Any]:
    layout = TensorLayout.of(torch)
    return {
        "tensor": torch.Tensor,
        "parameter": torch.nn.Parameter,
        "overload": torch._ops.OpOverload,  # noqa: SLF001 - the class has no public name
        "device": torch.device,
        "symbols": (torch.dtype, torch.layout, torch.memory_format),
        "has_mode": torch._C._has_torch_function_unary,  # noqa: SLF001 - has no public name
        "requires_grad": torch._C.TensorBase.requires_grad,  # noqa: SLF001 - has no public name
        "implementation_offset": layout.implementation,
        "virtual_table": layout.virtual_table,
        "keys_offset": layout.keys,
        "storage_offset": layout.storage,
        "functions": _addresses(torch),
    }


def _addresses(torch: ModuleType) -> tuple[int, ...]:
    directory = Path(torch.__file__ or "").parent / "lib"
    file = next(iter(sorted(directory.glob("libtorch_cpu.*"))), directory / "libtorch_cpu.so")
    library = ctypes.CDLL(str(file))
    found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _FUNCTIONS]
    return tuple(address or 0 for address in found)


def _check(torch: ModuleType, dispatch: Any) -> None:
    """Compare the facts that C reads with those of torch; raise UnknownLayout if they differ."""
    for live in _samples(torch):
        words = dispatch.words(live)
        sizes = [each for pair in zip(live.shape, live.stride(), strict=True) for each in pair]
        expected = (_keys(torch, live), live.storage_offset(), *sizes)
        if words is None or words[1:] != expected:
            raise UnknownLayout("its tensors are not read correctly")
        if bool(words[0] >> 8 & 1) is not live.requires_grad or words[0] >> 16 & 255 != live.dim():
            raise UnknownLayout("its tensors are not read correctly")
    dtypes = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)
    read = {dispatch.words(torch.ones(2, dtype=each, device="cpu"))[0] for each in dtypes}
    if len(read) != len(dtypes):
        raise UnknownLayout("its dtypes are not read correctly")
