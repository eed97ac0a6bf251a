"""Report the operations that a torch program runs, and at level ``api`` its public functions.

    torch.ops.aten.addmm.default              the dispatcher's operations, with the overload
    torch.nn.functional.linear, torch.add     level api: functions, by their public names
    torch.Tensor.add, torch.Tensor.T          level api: methods, operators, getters that compute

At level ``aten`` one dispatch mode is on. It sees what the dispatcher runs, as any
``TorchDispatchMode`` does. Fast paths of modules stay. As under any such mode, autograd sums
gradients out of place. Repeated calls are recorded in C.

Level ``api`` adds a function mode. It sees public functions, methods and operators; the operations
that they run are recorded as their children. A function mode makes ``has_torch_function`` true for
all tensors: ``nn.MultiheadAttention`` and ``nn.TransformerEncoder`` leave their fast paths, so that
other operations run than without tracing. These are not operations: functions that only read or set
a property of a tensor (``METADATA``, all names that begin with ``is_``, and getters and setters
outside of ``GETTERS``); private functions, whose operations appear in the dispatcher; and calls of
``torch.ops`` by name, which appear there too.

Arguments get the same names in every form of a call. Operations of the dispatcher have a schema,
Python functions a signature; functions and methods in C++ have the schemas of the ATen operation of
their name, whose first parameter is called ``input`` in functions. A key holds the facts that the
description of a tensor has, each known combination as one number, and which arguments are one
tensor or share a storage. The caller switches torch functions off before anything is read.

Modes belong to threads. They are active in the thread that installs the probe, and in threads that
are started through ``threading`` while it is installed; not in threads that ran before. Install a
probe outside of other modes: torch's modes are a stack, and leaving a mode removes the top one,
whichever it is.

Limits: the inside of a compiled function may be invisible, since it runs as it was compiled. The
dispatcher does not show the operations of a higher-order operator, and in inference mode it shows
composite operations, such as ``aten.linear``, as one operation. At level ``api``, under an earlier
function mode, or with tensors of a class that has ``__torch_function__``, only the outermost of
nested functions is seen; with an older torch, which cannot skip one hop, this always holds. A
function inside a call of itself is not seen.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from types import EllipsisType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

from optrove.frameworks.argument_names import bind_by_place, bind_by_signature
from optrove.frameworks.fingerprints import Fingerprints, NoFingerprint, Rule
from optrove.frameworks.installed import loaded_tables
from optrove.frameworks.probe_protocol import ATEN, CURRENT, MUTED, FlowProbe, ObservedOp
from optrove.frameworks.torch.dynamo import leave_uncompiled
from optrove.frameworks.torch.fast_path import flow_stream, native_dispatch
from optrove.serializer.describe import DescriptionCache

if TYPE_CHECKING:
    from collections.abc import Hashable
    from types import FrameType

    from optrove.frameworks.probe_protocol import CachedCase, Call, Listener
    from optrove.serializer.tables import Tables


Named = dict[str, Any]
Binder = Callable[[tuple[Any, ...], Mapping[str, Any]], Named]

UNDOCUMENTED: Final[Mapping[str, tuple[str, ...]]] = {
    "torch.as_tensor": ("data", "dtype", "device"),
    "torch.asarray": ("obj",),
    "torch.frombuffer": ("buffer",),
    "torch.tensor": ("data",),
}
"""Parameters of functions that torch does not document."""

_INT_LIST: Final = "List[int]"
_LOOSE: Final = inspect.Parameter.VAR_POSITIONAL
_NAMED: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a schema; ``kind`` is its type, without ``Optional``."""

    name: str
    kind: str
    optional: bool
    required: bool
    keyword_only: bool


@dataclass(frozen=True, slots=True)
class Overload:
    """One overload of an ATen operation; ``first`` is the place that may take separate sizes."""

    positional: tuple[Parameter, ...]
    by_name: Mapping[str, Parameter]
    first: int

    def bind(
        self, arguments: tuple[Any, ...], keywords: Mapping[str, Any], accepts: Accepts
    ) -> Named | None:
        """Return the arguments by name; None if they do not fit."""
        arguments = self._gathered(arguments)
        if len(arguments) > len(self.positional):
            return None
        placed = {part.name: live for part, live in zip(self.positional, arguments, strict=False)}
        if placed.keys() & keywords.keys():
            return None
        bound = placed | dict(keywords)
        required = {part.name for part in self.by_name.values() if part.required}
        if not required <= bound.keys() <= self.by_name.keys():
            return None
        fits = all(accepts(self.by_name[name], live) for name, live in bound.items())
        return bound if fits else None

    def _gathered(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Join separate sizes: ``view(2, 3)`` is ``view((2, 3))``."""
        first = self.first
        if (
            len(arguments) > first + 1
            and len(self.positional) > first
            and self.positional[first].kind == _INT_LIST
            and all(type(live) is int for live in arguments[first:])
        ):
            return (*arguments[:first], arguments[first:])
        return arguments


Accepts = Callable[[Parameter, Any], bool]


class Signatures:
    """The parameters of torch's functions."""

    def __init__(self, torch: ModuleType) -> None:
        self._torch = torch
        self._examples: Mapping[Any, Any] = torch.overrides.get_testing_overrides()
        number = (int, float, complex)
        sequence = (list, tuple)
        self._classes: dict[str, Any] = {
            "Tensor": torch.Tensor,
            "number": number,
            "int": (int, torch.SymInt),
            "float": (int, float, torch.SymFloat),
            "bool": (bool, torch.SymBool),
            "complex": number,
            "str": str,
            "ScalarType": torch.dtype,
            "Layout": torch.layout,
            "MemoryFormat": torch.memory_format,
            "Device": (torch.device, str, int),
            "Generator": torch.Generator,
            "Dimname": str,
            _INT_LIST: (int, torch.SymInt, *sequence),
        }
        self._lists = sequence

    def of_operation(self, operation: Any) -> Binder:
        """Return the function that names the arguments of a dispatcher operation."""
        parameters = operation._schema.arguments  # noqa: SLF001 - torch has no public access to schemas
        names = tuple(parameter.name for parameter in parameters)
        optional = {
            parameter.name
            for parameter in parameters
            if parameter.has_default_value() and parameter.default_value is None
        }
        if not optional:
            return partial(bind_by_place, names=names)

        def bind(arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Named:
            # From C++ the dispatcher shows an undefined tensor as None, from Python it leaves out
            # a None that is the default.
            named = bind_by_place(arguments, keywords, names)
            return {k: v for k, v in named.items() if v is not None or k not in optional}

        return bind

    def of_function(self, name: str, function: Any, *, method: bool) -> Binder:
        """Return the function that names the arguments of the function called ``name``."""
        if isinstance(function, FunctionType):
            signature = _signature(function)
            if signature is not None:
                return partial(bind_by_signature, signature)
        overloads = self._overloads(function, method=method)
        names = UNDOCUMENTED.get(name) or self._example_names(function)
        names = ("self", *names[1:]) if method else names

        def bind(arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Named:
            for overload in overloads:
                bound = overload.bind(arguments, keywords, self._accepts)
                if bound is not None:
                    return bound
            return bind_by_place(arguments, keywords, names)

        return bind

    def _overloads(self, function: Any, *, method: bool) -> tuple[Overload, ...]:
        name = getattr(function, "__name__", "")
        packet = None if name.startswith("__") else getattr(self._torch.ops.aten, name, None)
        if packet is None:
            return ()
        schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]  # noqa: SLF001 - as above
        return tuple(_overload(schema.arguments, method=method) for schema in schemas)

    def _example_names(self, function: Any) -> tuple[str, ...]:
        """Return the parameters of torch's testing override of a function; empty without one."""
        example = self._examples.get(function)
        if example is None:
            return ()
        parameters = inspect.signature(example).parameters.values()
        return tuple(each.name for each in parameters if each.kind is _NAMED)

    def _accepts(self, parameter: Parameter, live: Any) -> bool:
        if live is None:
            return parameter.optional
        kind = parameter.kind
        classes = self._classes.get(kind)
        if classes is None:
            return not kind.startswith("List[") or isinstance(live, self._lists)
        # In Python a bool is an int; in torch it is not.
        if kind in ("int", _INT_LIST) and isinstance(live, bool):
            return False
        return isinstance(live, classes)


def _overload(arguments: Iterable[Any], *, method: bool) -> Overload:
    parameters = []
    for argument in arguments:
        text = str(argument.real_type)
        optional = text.startswith("Optional[")
        name = argument.name if method or argument.name != "self" else "input"
        kind = text[len("Optional[") : -1] if optional else text
        if argument.name == "dtype" and kind == "int":
            kind = "ScalarType"  # TorchScript's overloads, as to(device, dtype), have numbers there
        required = not argument.has_default_value()
        parameters.append(Parameter(name, kind, optional, required, argument.kwarg_only))
    return Overload(
        positional=tuple(part for part in parameters if not part.keyword_only),
        by_name={part.name: part for part in parameters},
        first=1 if method else 0,
    )


def _signature(function: Any) -> inspect.Signature | None:
    """Return the signature of a Python function; None if it has no names."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # it wraps a function of C++
        return None
    first = next(iter(signature.parameters.values()), None)
    return None if first is not None and first.kind is _LOOSE else signature


MAX_FACTS: Final = 32_768
MAX_PARTS: Final = 2048
"""The longest key: calls with longer lists of numbers are described each time."""

MAX_RESULTS: Final = 1024
"""How many results of one call are recognized; ``item()`` can return any number."""


class _Key(list[Any]):
    """A key under construction, and its tensors."""

    __slots__ = ("tensors",)

    def __init__(self) -> None:
        self.tensors: list[Any] = []


class TorchFingerprints(Fingerprints):
    """The keys of torch's calls and results; threads may share it."""

    def __init__(
        self, torch: ModuleType, tables: Callable[[], Tables], cache: DescriptionCache
    ) -> None:
        super().__init__(tables, cache)
        self._tensor = torch.Tensor
        self._strided = torch.strided
        self._parts: dict[Hashable, int] = {}
        self._numbers_of_parts = count(1)
        self._kinds = {torch.Tensor, torch.nn.Parameter}
        for kind in self._kinds:
            self.rules[kind] = self._add_tensor  # type: ignore[assignment]  # every key made here is a _Key
        self.rules[torch.device] = _itself
        self.rules[torch.Size] = self._sequence
        self.rules[slice] = self._slice
        self.rules[EllipsisType] = _only_one
        for kind in vars(torch.return_types).values():
            if isinstance(kind, type) and issubclass(kind, tuple):
                self.rules[kind] = self._sequence

    def call(self, op: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Hashable:
        """Return the key of a call; None if it has no key."""
        key, kinds = _Key(), self._kinds
        key.append(op)
        try:
            for live in arguments:
                if type(live) in kinds:
                    self._add_tensor(key, live)
                else:
                    self.add(key, live)
            for name, live in keywords.items():
                key.append(name)
                self.add(key, live)
            tensors = key.tensors
            if tensors:
                storages = _storages(tensors)
                if len({*storages}) != len(storages):
                    key.append(_sharing([id(live) for live in tensors], storages, 0))
        except NoFingerprint:
            return None
        return tuple(key)

    def result(self, known: CachedCase, live: Any, call: Call) -> Hashable:
        """Return the key of a result; None if it has no key."""
        if len(known.outputs) >= MAX_RESULTS:
            known.outputs.clear()
        key = _Key()
        try:
            self.add(key, live)
            if key.tensors:
                ids, storages = self._places(call)
                places = len(ids)
                storages = [*storages, *_storages(key.tensors)]
                ids = [*ids, *[id(each) for each in key.tensors]]
                key.append(_sharing(ids, storages, places))
        except NoFingerprint:
            return None
        return tuple(key)

    def _places(self, call: Call) -> tuple[list[int], list[Hashable]]:
        """Return the ids and storages of a call's tensors."""
        tensors = self.tensors(call)
        return [id(live) for live in tensors], _storages(tensors)

    def tensors(self, live: Any) -> list[Any]:
        """Return the tensors in nested sequences and mappings, in their order."""
        found: list[Any] = []
        self._collect(found, live)
        return found

    def tidy(self) -> None:
        """Bound the memory; the numbers of facts are never reused."""
        if len(self._parts) > MAX_FACTS:
            self._parts.clear()

    def rule_for(self, kind: type) -> Rule:
        """Return the rule of a class; subclasses of the tensor class are tensors."""
        if issubclass(kind, self._tensor):
            self._kinds.add(kind)
            return self._add_tensor  # type: ignore[return-value]  # every key made here is a _Key
        return super().rule_for(kind)

    def _collect(self, tensors: list[Any], live: Any) -> None:
        kind = type(live)
        if kind in self._kinds:
            tensors.append(live)
        elif kind is tuple or kind is list:
            for item in live:
                self._collect(tensors, item)
        elif kind is dict:
            for item in live.values():
                self._collect(tensors, item)

    def _add_tensor(self, key: _Key, live: Any) -> None:
        try:
            layout, dtype = live.layout, live.dtype
            facts = (
                live.shape,
                live.stride() if layout is self._strided else (),
                dtype,
                live.device,
                layout,
                live.requires_grad,
                live.storage_offset(),
                dtype.is_complex and live.is_conj(),
                live.is_neg(),
            )
            part = self._parts.get(facts)
        except Exception as error:
            # Nested tensors have no size, and symbolic sizes have no hash.
            raise NoFingerprint from error
        if part is None:
            if live.is_quantized:
                # Only quantized dtypes are, so these facts never get a number.
                raise NoFingerprint
            part = self._parts.setdefault(facts, next(self._numbers_of_parts))
        key.append(part)
        key.tensors.append(live)

    def _sequence(self, key: list[Any], live: Any) -> None:
        if len(key) + len(live) > MAX_PARTS:
            raise NoFingerprint
        super()._sequence(key, live)

    def _slice(self, key: list[Any], live: slice) -> None:
        self.add(key, live.start)
        self.add(key, live.stop)
        self.add(key, live.step)


def named_key(live: Any) -> Hashable:
    """Return the key by which a Describer knows a tensor."""
    return "torch.Tensor", id(live)


def _sharing(ids: list[int], storages: list[Hashable], first: int) -> Hashable:
    """Return the first equal tensor and the first with its storage, from tensor ``first`` on."""
    if len({*storages}) == len(storages):
        return None
    later = range(first, len(ids))
    return tuple([(ids.index(ids[at]), storages.index(storages[at])) for at in later])


def _storages(tensors: list[Any]) -> list[Hashable]:
    try:
        return [live.untyped_storage()._cdata for live in tensors]  # noqa: SLF001 - identifies a storage without reading it
    except Exception:  # noqa: BLE001 - some tensor has no visible storage; read one by one below
        return [_storage(live) for live in tensors]


def _storage(live: Any) -> Hashable:
    try:
        number: int = live.untyped_storage()._cdata  # noqa: SLF001 - as above
    except NotImplementedError:
        return ("tensor", id(live))
    except Exception as error:
        raise NoFingerprint from error
    return number


def _itself(key: list[Any], live: Hashable) -> None:
    key.append(live)


def _only_one(_: list[Any], ____: Any) -> None:
    """Add nothing: the class, which is in the key, has only one object."""


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
"""Functions and methods that only read or set a property of a tensor."""

READS: Final = frozenset({"is_nonzero"})
"""Names that begin with ``is_`` but read the numbers of a tensor."""

MAX_OPS: Final = 8192

_BOOKKEEPING: Final = ("prim", "profiler")
"""Operations of the dispatcher that compute nothing."""

OWN_SPACES: Final = frozenset(
    {"_c10d_functional", "_quantized", "aten", "c10d", "mkldnn", "mkldnn_prepacked", "onednn",
     "prepacked", "prim", "prims", "profiler", "quantized", "sparse"}
)  # fmt: skip
"""The namespaces of operations that torch itself registers."""

_SETTERS: Final = ("__set__", "__delete__")
_CHECKS: Final = "has_torch_function"


class ObservedOps:
    """The observed ops of functions and operations, each created at its first call.

    ``functions`` and ``operations`` are caches; None means that it is not an operation. ``nesting``
    are the functions that may call other functions. ``faults`` counts functions that raised an
    error here; their calls are not recorded. ``libraries`` has the module that registered the
    operations of each namespace that is not torch's own, None if it is unknown.
    """

    def __init__(
        self, torch: ModuleType, fingerprints: TorchFingerprints, flow: FlowProbe | None = None
    ) -> None:
        self._flow = flow
        self.functions: dict[Any, ObservedOp | None] = {}
        self.operations: dict[Any, ObservedOp | None] = {}
        self.nesting: set[Any] = set()
        self.faults: Counter[str] = Counter()
        self.libraries: dict[str, str | None] = {}
        self._torch = torch
        self._fingerprints = fingerprints
        self._signatures = Signatures(torch)
        self._resolve: Callable[[Any], str | None] = torch.overrides.resolve_name
        self._operations = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)  # noqa: SLF001 - these classes have no public name

    def function(self, function: Any) -> ObservedOp | None:
        """Return the observed op of a new function; None if it is not an operation."""
        return self._kept(self.functions, function, self._function_op)

    def operation(self, operation: Any) -> ObservedOp | None:
        """Return the observed op of a new operation of the dispatcher, or None."""
        return self._kept(self.operations, operation, self._operation_op)

    def _kept(
        self,
        ops: dict[Any, ObservedOp | None],
        live: Any,
        make: Callable[[Any], ObservedOp | None],
    ) -> ObservedOp | None:
        try:
            observed = make(live)
        except Exception as error:  # noqa: BLE001 - the program must not see our errors; they are counted
            self.faults[
                f"{type(error).__name__} while a {type(live).__name__} was named: {error}"
            ] += 1
            observed = None
        if len(ops) >= MAX_OPS:
            ops.clear()
        ops[live] = observed
        return observed

    def _function_op(self, function: Any) -> ObservedOp | None:
        if isinstance(function, (*self._operations, type)):
            return None
        name = self._resolve(function) or _own_name(function)
        if name is None:
            return None
        if name.endswith("__get__"):
            return self._getter_op(name.removesuffix(".__get__"))
        last = name.rpartition(".")[2]
        if last in _SETTERS or not is_operation(last):
            return None
        if isinstance(function, FunctionType) and _CHECKS in " ".join(function.__code__.co_names):
            self.nesting.add(function)
        method = name.startswith("torch.Tensor.")
        public = self._public(name, function)
        bind = self._signatures.of_function(public, function, method=method)
        return self._observed_op(public, bind, composite=True)

    def _getter_op(self, name: str) -> ObservedOp | None:
        if name.rpartition(".")[2] not in GETTERS:
            return None
        return self._observed_op(name, partial(bind_by_place, names=("self",)), composite=True)

    def _operation_op(self, operation: Any) -> ObservedOp | None:
        if not isinstance(operation, self._operations):
            name = f"torch.ops.higher_order.{operation.name()}"
            return self._observed_op(name, bind_by_place, composite=False)
        space = operation._schema.name.partition("::")[0]  # noqa: SLF001 - as in Signatures
        if space in _BOOKKEEPING:
            return None
        if space not in OWN_SPACES:
            self.libraries.setdefault(space, _module_of(self._torch, operation))
        bind = self._signatures.of_operation(operation)
        return self._observed_op(f"torch.ops.{operation}", bind, composite=False)

    def _public(self, name: str, function: Any) -> str:
        """Return the name that users write: ``torch.split`` for ``torch.functional.split``."""
        place, _, last = name.rpartition(".")
        if place == "torch.functional" and getattr(self._torch, last, None) is function:
            return f"torch.{last}"
        return name

    def _observed_op(self, op: str, bind: Any, *, composite: bool) -> ObservedOp:
        fingerprints = self._fingerprints
        key = partial(fingerprints.call, op)
        return ObservedOp(op, bind, key, fingerprints.result, composite=composite, flow=self._flow)


_REGISTERED: Final = re.compile(r"registered at (.*\.py):\d+")


def _module_of(torch: ModuleType, operation: Any) -> str | None:
    """Return the name of the module whose import registers an operation; None if unknown.

    That is the module that defines it in Python, or the package that is named as its namespace.
    """
    name = operation._schema.name  # noqa: SLF001 - as in Signatures
    custom = sys.modules.get("torch._library.custom_ops")
    defined = getattr(custom, "OPDEFS", {}).get(name)
    if defined is not None:
        return _importable(getattr(defined._init_fn, "__module__", ""))  # noqa: SLF001 - has no public name
    space = name.partition("::")[0]
    if space in sys.modules:
        return str(space)
    files = _REGISTERED.findall(torch._C._dispatch_dump(name))  # noqa: SLF001 - has no public name
    by_file = {getattr(each, "__file__", None): key for key, each in [*sys.modules.items()]}
    found = next((by_file[file] for file in files if file in by_file), None)
    return None if found is None else _importable(found)


def _importable(module: str) -> str:
    """Return the name that imports a module; that of the program is the name of its file."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return Path(file).stem if module == "__main__" and file else module


def is_operation(name: str) -> bool:
    """Return whether the last part of a function's name is that of an operation."""
    if name in METADATA or (name.startswith("is_") and name not in READS):
        return False
    special = name.startswith("__") and name.endswith("__")
    return special or not name.startswith("_")


def _own_name(function: Any) -> str | None:
    """Return the qualified name of a function; None if it is private in torch."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        return None
    parts = f"{module}.{name}".split(".")
    private = parts[0] == "torch" and any(part.startswith("_") for part in parts)
    return None if private else ".".join(parts)


__tracebackhide__ = True  # pytest hides the frames of this module

_UNMET: Final = object()
_BOOTSTRAP: Final = "_bootstrap_inner"
"""The method that every thread runs; the same in CPython 3.10 to 3.14."""


class TorchProbe:
    """The modes of one loaded torch; the caller installs and removes them."""

    def __init__(
        self,
        torch: ModuleType,
        listener: Listener,
        fingerprints: TorchFingerprints | None = None,
        *,
        level: str = ATEN,
    ) -> None:
        """Report to ``listener``; without ``fingerprints`` the probe creates its own."""
        self.fingerprints = fingerprints or TorchFingerprints(
            torch, loaded_tables, DescriptionCache()
        )
        self._torch = torch
        self._listener = listener
        self._stream = flow_stream(listener)
        flow = None
        if self._stream is not None:
            flow = FlowProbe(self._stream, self.fingerprints.tensors, named_key)
        self._ops = ObservedOps(torch, self.fingerprints, flow)
        self._switch = _Switch()
        self._make = _mode_maker(torch, self, level)
        self._leave_uncompiled()
        self._installed: _Modes | None = None
        self._bootstrap: Any = None
        self._watched_bootstrap: Any = None
        self._stacks = _ProgramStacks(torch)

    @property
    def faults(self) -> Counter[str]:
        """The errors while functions were named, counted."""
        return self._ops.faults

    @property
    def libraries(self) -> dict[str, str | None]:
        """The modules that registered the operations of other libraries, by namespace."""
        return dict(self._ops.libraries)

    def install(self, *, in_forks: bool = False) -> None:
        """Observe this thread, and the threads that are started from now on.

        With ``in_forks`` also those of forked processes, in which the listener has to continue.
        """
        if self._installed is not None:
            return
        self._switch.turn(on=True)
        self._installed = self._push()
        self._bootstrap = getattr(threading.Thread, _BOOTSTRAP)
        self._watched_bootstrap = self._watching(self._bootstrap)
        setattr(threading.Thread, _BOOTSTRAP, self._watched_bootstrap)
        self._stacks.install()
        if not in_forks:
            os.register_at_fork(after_in_child=self._switch.turning_off())

    def remove(self) -> None:
        """Stop observing. Below other modes, the probe's modes stay and only pass calls on."""
        if self._installed is None:
            return
        self._switch.turn(on=False)
        # If another program has wrapped ours, ours stays and only passes calls on.
        if getattr(threading.Thread, _BOOTSTRAP) is self._watched_bootstrap:
            setattr(threading.Thread, _BOOTSTRAP, self._bootstrap)
        self._stacks.remove()
        self._installed.pop()
        self._installed = None

    def pause(self) -> None:
        """Report nothing until ``resume``."""
        self._switch.turn(on=False)

    def resume(self) -> None:
        """Report again, if the probe is installed; also in a forked process."""
        self._switch.turn(on=self._installed is not None)

    def __enter__(self) -> TorchProbe:
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def _leave_uncompiled(self) -> None:
        """Keep TorchDynamo off all that the C code and the handlers call."""
        listener, ops = self._listener, self._ops
        recording = (listener.begin, listener.end, listener.fail, listener.outputs, listener.site)
        naming = (ops.function, ops.operation, self._resolve, self.fingerprints.call)
        windows = (listener.flow_windows, listener.error)
        leave_uncompiled(self._torch, (*recording, *naming, *windows), callees=True)

    def _push(self) -> _Modes:
        modes = _Modes(self._torch, *self._make())
        modes.push()
        return modes

    def _watching(self, bootstrap: Callable[[Any], None]) -> Callable[[Any], None]:
        push = self._push

        def watched(thread: Any) -> None:
            if self._installed is None:
                bootstrap(thread)
                return
            modes = push()
            try:
                bootstrap(thread)
            finally:
                modes.pop()

        return watched

    def function_handler(self) -> Callable[..., Any]:
        """Return the function that reports a call of a public function."""
        ops, switch, listener = self._ops, self._switch, self._listener
        known, op_of, nesting = ops.functions, ops.function, ops.nesting
        begin, end, fail = listener.begin, listener.end, listener.fail
        unnoticed = self._torch._C.DisableTorchFunction  # noqa: SLF001 - has no public name
        current, frame_above = CURRENT.get, sys._getframe  # noqa: SLF001 - no public function returns the caller's frame
        inside = _inside(self._torch)

        def handle(mode: Any, function: Any, types: Any, arguments: Any, keywords: Any) -> Any:
            if not switch.on or current() is MUTED:
                return function(*arguments, **keywords)
            observed: Any = known.get(function, _UNMET)
            if observed is _UNMET:
                with unnoticed():
                    observed = op_of(function)
            if observed is None or function in mode.going:
                return function(*arguments, **keywords)
            with unnoticed():
                entered = begin(observed, arguments, keywords, frame_above(2))
            try:
                if function in nesting:
                    result = inside(mode, function, types, arguments, keywords)
                else:
                    result = function(*arguments, **keywords)
            except BaseException as error:
                with unnoticed():
                    fail(entered, error)
                raise
            with unnoticed():
                end(entered, result)
            return result

        leave_uncompiled(self._torch, (handle, inside), callees=False)
        return handle

    def operation_handler(self, level: str) -> Callable[..., Any]:
        """Return the function that reports a call of a dispatcher operation."""
        ops, switch, listener = self._ops, self._switch, self._listener
        known, op_of = ops.operations, ops.operation
        begin, end, fail = listener.begin, listener.end, listener.fail
        unnoticed = self._torch._C.DisableTorchFunction  # noqa: SLF001 - as above
        current = CURRENT.get
        run = _below_functions(self._torch)

        def handle(
            operation: Any, types: Any, arguments: Any, keywords: Any, frame: FrameType | None
        ) -> Any:
            if not switch.on or current() is MUTED:
                return run(operation, types, arguments, keywords)
            observed: Any = known.get(operation, _UNMET)
            if observed is _UNMET:
                with unnoticed():
                    observed = op_of(operation)
            if observed is None:
                return run(operation, types, arguments, keywords)
            with unnoticed():
                entered = begin(observed, arguments, keywords, frame)
            try:
                result = run(operation, types, arguments, keywords)
            except BaseException as error:
                with unnoticed():
                    fail(entered, error)
                raise
            with unnoticed():
                end(entered, result)
            return result

        leave_uncompiled(self._torch, (handle, run), callees=False)
        state = listener.fast_path_state
        if level == ATEN and state is not None:
            native = native_dispatch(
                self._torch, listener, state, self._resolve, handle, self._stream
            )
            if native is not None:
                switch.native = native
                return cast("Callable[..., Any]", native)
        frame_above = sys._getframe  # noqa: SLF001 - the only way to the caller's line

        def dispatch(operation: Any, types: Any, arguments: Any, keywords: Any) -> Any:
            return handle(operation, types, arguments, keywords, frame_above(2))

        leave_uncompiled(self._torch, (dispatch,), callees=False)
        return dispatch

    def _resolve(self, operation: Any) -> ObservedOp | None:
        """Return the observed op of an operation; None if it is not recorded."""
        found: Any = self._ops.operations.get(operation, _UNMET)
        if found is not _UNMET:
            observed: ObservedOp | None = found
            return observed
        with self._torch._C.DisableTorchFunction():  # noqa: SLF001 - as above
            return self._ops.operation(operation)


class _Switch:
    """Whether calls are reported; off in every process that is forked."""

    __slots__ = ("__weakref__", "native", "on")

    def __init__(self) -> None:
        self.on = False
        self.native: Any = None

    def turn(self, *, on: bool) -> None:
        """Report calls from now on, or no more; the C code has a switch of its own."""
        self.on = on
        if self.native is not None:
            self.native.on = on

    def turning_off(self) -> Callable[[], None]:
        """Return a function that turns it off; it holds a weak reference, as it lives forever."""
        reference = weakref.ref(self)

        def turn_off() -> None:
            switch = reference()
            if switch is not None:
                switch.turn(on=False)

        return turn_off


_OURS: Final = f'  File "{Path(__file__).parents[2]}{os.sep}'
_LAUNCHER: Final = f"{_OURS}tracing{os.sep}script.py"
_IMPORT: Final = '  File "<frozen importlib'


class _ProgramStacks:
    """Keeps our frames out of the stacks that torch stores, as anomaly mode does."""

    def __init__(self, torch: ModuleType) -> None:
        self._home: Any = torch.fx.traceback
        self._original = original = self._home.format_stack

        def format_stack() -> list[str]:
            return _of_program(original()[:-1])  # without the frame of this function

        self._filtered = format_stack

    def install(self) -> None:
        """Replace torch's function that formats a stack."""
        self._home.format_stack = self._filtered

    def remove(self) -> None:
        """Put torch's function back, unless another program has replaced ours."""
        if self._home.format_stack is self._filtered:
            self._home.format_stack = self._original


def _of_program(stack: list[str]) -> list[str]:
    """Return the entries of a formatted stack that it has without tracing."""
    first = max(
        (at + 1 for at, entry in enumerate(stack) if entry.startswith(_LAUNCHER)), default=0
    )
    while first and first < len(stack) and stack[first].startswith(_IMPORT):
        first += 1
    return [entry for entry in stack[first:] if not entry.startswith(_OURS)]


class _Modes:
    """The modes of one thread: one for operations and, at level api, one for functions.

    They are pushed as in torch's ``__enter__``, which would also set flags that all threads share
    and that disable ``torch.compile``.
    """

    def __init__(self, torch: ModuleType, functions: Any, operations: Any) -> None:
        from torch.utils import _python_dispatch

        self._functions, self._operations = functions, operations
        self._overrides: Any = torch.overrides
        self._dispatch: Any = _python_dispatch
        self._thread = threading.get_ident()

    def push(self) -> None:
        """Push the modes in this thread."""
        if self._functions is not None:
            self._overrides._push_mode(self._functions)  # noqa: SLF001 - see the class
        self._dispatch._push_mode(self._operations)  # noqa: SLF001 - see the class

    def pop(self) -> None:
        """Pop the modes, each only if it is on top in the thread that pushed it."""
        if threading.get_ident() != self._thread:
            return
        functions = self._functions
        if functions is not None and self._overrides._get_current_function_mode() is functions:  # noqa: SLF001 - torch has no public way to ask
            self._overrides._pop_mode()  # noqa: SLF001 - see the class
        if self._dispatch._get_current_dispatch_mode() is self._operations:  # noqa: SLF001 - torch has no public way to ask
            self._dispatch._pop_mode()  # noqa: SLF001 - see the class


def _mode_maker(torch: ModuleType, probe: TorchProbe, level: str) -> Callable[[], tuple[Any, Any]]:
    """Return a function that makes the modes of a thread; no function mode at level aten."""
    operations = _operation_mode(torch, probe.operation_handler(level))
    if level == ATEN:
        return lambda: (None, operations())
    functions = _function_mode(torch, probe.function_handler())
    return lambda: (functions(), operations())


# torch.compile reads these methods, so they must be simple; to it ``compiling()`` is constant.


def _function_mode(torch: ModuleType, call: Callable[..., Any]) -> type:
    compiling = torch.compiler.is_compiling

    class FunctionMode(torch.overrides.TorchFunctionMode):  # type: ignore[name-defined,misc]  # torch is a parameter
        going: tuple[Any, ...] = ()

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if compiling():
                return func(*args, **(kwargs or {}))
            return call(self, func, types, args, kwargs or {})

    leave_uncompiled(torch, (FunctionMode.__torch_function__,), callees=False)
    return FunctionMode


def _operation_mode(torch: ModuleType, call: Any) -> type:
    from torch.utils._python_dispatch import TorchDispatchMode

    compiling = torch.compiler.is_compiling

    class OperationMode(TorchDispatchMode):  # type: ignore[misc]  # torch is not typed here
        supports_higher_order_operators = True

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # else torch imports its compiler at the first call

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if compiling():
                return func(*args, **(kwargs or {}))
            return call(func, types, args, kwargs or {})

    leave_uncompiled(torch, (OperationMode.__torch_dispatch__,), callees=False)
    if not isinstance(call, FunctionType):
        # In C: torch calls it without a Python function in between.
        OperationMode.__torch_dispatch__ = call  # type: ignore[method-assign]  # as above
    return OperationMode


def _inside(torch: ModuleType) -> Callable[..., Any]:
    """Return a function that calls a function so that its inner functions are seen too."""
    overrides, parts = torch.overrides, torch._C  # noqa: SLF001 - these have no public names
    skip = getattr(parts, "_skip_one_hop_torch_function", None)
    modes_below = parts._len_torch_function_stack  # noqa: SLF001 - as above
    disabled, plain = parts._disabled_torch_function_impl, {torch.Tensor}  # noqa: SLF001 - as above

    def is_plain(kind: Any) -> bool:
        return kind in plain or kind.__torch_function__ is disabled

    def inside(mode: Any, function: Any, types: Any, arguments: Any, keywords: Any) -> Any:
        # Skipping the hop would also skip other modes and functions of tensor classes.
        if skip is None or modes_below() or not all(map(is_plain, types)):
            return function(*arguments, **keywords)
        above = mode.going
        mode.going = (*above, function)
        overrides._push_mode(mode)  # noqa: SLF001 - as above
        try:
            return skip(function, types, arguments, keywords)
        finally:
            if overrides._get_current_function_mode() is mode:  # noqa: SLF001 - as above
                overrides._pop_mode()  # noqa: SLF001 - as above
            mode.going = above

    return inside


def _below_functions(torch: ModuleType) -> Callable[..., Any]:
    """Return a function that runs an operation without function modes noticing."""
    skip = getattr(torch._C, "_skip_one_hop_torch_function", None)  # noqa: SLF001 - as above
    noticing = torch._ops.OpOverload  # noqa: SLF001 - as above

    def run(operation: Any, types: Any, arguments: Any, keywords: Any) -> Any:
        # Function modes only notice an OpOverload.
        if skip is None or not isinstance(operation, noticing):
            return operation(*arguments, **keywords)
        return skip(operation, types, arguments, keywords)

    return run
