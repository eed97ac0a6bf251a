"""Decide which calls of torch are operations, and what each is called.

    torch.nn.functional.linear, torch.add     functions, by their public names
    torch.Tensor.add, torch.Tensor.T          methods, operators and getters that compute
    torch.ops.aten.addmm.default              what the dispatcher runs, with the overload

Not operations are: what only tells or sets something about a tensor (``METADATA``, all names that
begin with ``is_``, and getters and setters outside of ``GETTERS``); private functions, since what
they run is seen in the dispatcher; and calls of ``torch.ops`` by name, which are seen there too.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from optrove.backends.torch_arguments import Signatures, by_names
from optrove.backends.watching import Form

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from optrove.backends.torch_fingerprints import TorchFingerprints

GETTERS: Final = frozenset({"H", "T", "imag", "mH", "mT", "real"})
"""The attributes of a tensor that are operations."""

METADATA: Final = frozenset(
    {
        "__class__", "__dir__", "__dlpack_device__", "__format__", "__hash__", "__len__",
        "__repr__", "__setstate__", "__str__", "can_cast", "compiled_with_cxx11_abi", "data_ptr",
        "dense_dim", "device", "dim", "dim_order", "element_size", "get_default_dtype",
        "get_device", "has_names", "ndimension", "nelement", "numel", "promote_types",
        "register_hook", "register_post_accumulate_grad_hook", "requires_grad_", "result_type",
        "retain_grad", "set_grad_enabled", "share_memory_", "size", "sparse_dim", "storage",
        "storage_offset", "storage_type", "stride", "sym_numel", "sym_size",
        "sym_storage_offset", "sym_stride", "typename", "untyped_storage",
    }
)  # fmt: skip
"""What only tells or sets something about a tensor, in functions, methods and the dispatcher."""

READS: Final = frozenset({"is_nonzero"})
"""Names that begin with ``is_`` and yet read a tensor's numbers."""

MAX_FORMS: Final = 8192

_BOOKKEEPING: Final = ("prim", "profiler")
"""Operations of the dispatcher that compute nothing."""

_SETTERS: Final = ("__set__", "__delete__")
_CHECKS: Final = "has_torch_function"


class Forms:
    """The forms of functions and operations, each made when it is first met.

    ``functions`` and ``operations`` hold what was found; None stands for what is no operation.
    ``nesting`` are the functions that may call other functions. ``faults`` counts those that
    could not be made out, whose calls are not recorded.
    """

    def __init__(self, torch: ModuleType, fingerprints: TorchFingerprints) -> None:
        self.functions: dict[Any, Form | None] = {}
        self.operations: dict[Any, Form | None] = {}
        self.nesting: set[Any] = set()
        self.faults: Counter[str] = Counter()
        self._torch = torch
        self._fingerprints = fingerprints
        self._signatures = Signatures(torch)
        self._resolve: Callable[[Any], str | None] = torch.overrides.resolve_name
        self._operations = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)  # noqa: SLF001 - these classes have no public name

    def function(self, function: Any) -> Form | None:
        """Return the form of a function that was not met before; None if it has none."""
        return self._kept(self.functions, function, self._function_form)

    def operation(self, operation: Any) -> Form | None:
        """Return the form of an operation of the dispatcher that was not met before."""
        return self._kept(self.operations, operation, self._operation_form)

    def _kept(
        self, forms: dict[Any, Form | None], live: Any, make: Callable[[Any], Form | None]
    ) -> Form | None:
        try:
            form = make(live)
        except Exception as error:  # noqa: BLE001 - the program must not meet our faults; they are counted
            self.faults[
                f"{type(error).__name__} while a {type(live).__name__} was named: {error}"
            ] += 1
            form = None
        if len(forms) >= MAX_FORMS:
            forms.clear()
        forms[live] = form
        return form

    def _function_form(self, function: Any) -> Form | None:
        if isinstance(function, (*self._operations, type)):
            return None
        name = self._resolve(function) or _own_name(function)
        if name is None:
            return None
        if name.endswith("__get__"):
            return self._getter_form(name.removesuffix(".__get__"))
        last = name.rpartition(".")[2]
        if last in _SETTERS or not is_operation(last):
            return None
        if isinstance(function, FunctionType) and _CHECKS in _names(function):
            self.nesting.add(function)
        method = name.startswith("torch.Tensor.")
        public = self._public(name, function)
        bind = self._signatures.of_function(public, function, method=method)
        return self._form(public, bind, composite=True)

    def _getter_form(self, name: str) -> Form | None:
        if name.rpartition(".")[2] not in GETTERS:
            return None
        return self._form(name, partial(by_names, ("self",)), composite=True)

    def _operation_form(self, operation: Any) -> Form | None:
        if not isinstance(operation, self._operations):
            name = f"torch.ops.higher_order.{operation.name()}"
            return self._form(name, partial(by_names, ()), composite=False)
        space, _, name = operation._schema.name.partition("::")  # noqa: SLF001 - as in Signatures
        if space in _BOOKKEEPING or not is_operation(name, private=True):
            return None
        bind = self._signatures.of_operation(operation)
        return self._form(f"torch.ops.{operation}", bind, composite=False)

    def _public(self, name: str, function: Any) -> str:
        """Return the name that users write: ``torch.split`` for ``torch.functional.split``."""
        place, _, last = name.rpartition(".")
        if place == "torch.functional" and getattr(self._torch, last, None) is function:
            return f"torch.{last}"
        return name

    def _form(self, op: str, bind: Any, *, composite: bool) -> Form:
        fingerprints = self._fingerprints
        key = partial(fingerprints.call, op)
        return Form(op, bind, key, fingerprints.result, composite=composite)


def is_operation(name: str, *, private: bool = False) -> bool:
    """Tell by the last part of a name whether it is that of an operation."""
    if name in METADATA or (name.startswith("is_") and name not in READS):
        return False
    special = name.startswith("__") and name.endswith("__")
    return private or special or not name.startswith("_")


def _own_name(function: Any) -> str | None:
    """Return what a function calls itself, None where it is torch's own and private."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        return None
    parts = f"{module}.{name}".split(".")
    private = parts[0] == "torch" and any(part.startswith("_") for part in parts)
    return None if private else ".".join(parts)


def _names(function: Any) -> str:
    """Return the names in a function's code."""
    return " ".join(function.__code__.co_names)
