"""Report every call of a torch function and of an ATen operation.

A call has the same names however it is spelled. Operations of the dispatcher have a schema;
functions written in Python a signature; functions and methods written in C++ go by the schemas of
the ATen operation of their name, whose first parameter is called ``input`` in functions.

The facts in a key are those that a description of a tensor holds, and where they are known a
number stands for them. Which arguments are one tensor, or share their numbers, is part of a key.

Everything here is read with torch functions switched off, which is up to the caller.

    torch.nn.functional.linear, torch.add     functions, by their public names
    torch.Tensor.add, torch.Tensor.T          methods, operators and getters that compute
    torch.ops.aten.addmm.default              what the dispatcher runs, with the overload

Not operations are: what only tells or sets something about a tensor (``METADATA``, all names that
begin with ``is_``, and getters and setters outside of ``GETTERS``); private functions, since what
they run is seen in the dispatcher; and calls of ``torch.ops`` by name, which are seen there too.

Two modes of torch are on while a probe is installed. One sees public functions, methods and
operators; what they call is their inside. The other sees what the dispatcher runs; that is a leaf,
and outermost where no function is above it (C++ code, autograd of another thread, torch.jit).

Modes belong to threads. The thread that installs the probe is covered, and so are the threads that
are started through ``threading`` while it is installed; threads that ran before are not, and
neither are forked processes, unless ``resume`` is called there. Install a probe outside of other
modes: torch's modes are a stack, and who leaves a mode takes away the last one, whichever it is.

Limits: the inside of a compiled function may not be seen, for it runs as it was compiled. Under a
function mode that was there before, or with tensors of a class that has ``__torch_function__``,
only the outermost of nested functions is seen; with an older torch, which cannot skip one hop,
this holds for all. A function inside a call of itself is not seen. The dispatcher shows nothing of
what a higher-order operator runs, and in inference mode it shows composite operations, such as
``aten.linear``, in one piece.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from types import EllipsisType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.argument_names import bind_by_place, bind_by_signature
from optrove.frameworks.fingerprints import Fingerprints, NoFingerprint, Rule
from optrove.frameworks.installed import loaded_tables
from optrove.frameworks.probe_protocol import CURRENT, MUTED, ObservedOp
from optrove.serializer.describe import DescriptionCache

if TYPE_CHECKING:
    from collections.abc import Hashable

    from optrove.frameworks.probe_protocol import CachedCase, Call, Listener
    from optrove.serializer.tables import Tables


Named = dict[str, Any]
Binder = Callable[[tuple[Any, ...], Mapping[str, Any]], Named]

UNTOLD: Final[Mapping[str, tuple[str, ...]]] = {
    "torch.as_tensor": ("data", "dtype", "device"),
    "torch.asarray": ("obj",),
    "torch.frombuffer": ("buffer",),
    "torch.tensor": ("data",),
}
"""Parameters of functions about which torch tells nothing."""

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
    """One way to call an ATen operation; ``first`` is the place that may take loose sizes."""

    positional: tuple[Parameter, ...]
    by_name: Mapping[str, Parameter]
    first: int

    def bind(
        self, arguments: tuple[Any, ...], keywords: Mapping[str, Any], accepts: Accepts
    ) -> Named | None:
        """Return the arguments by name, None when they do not fit."""
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
        """Put loose sizes together: ``view(2, 3)`` is ``view((2, 3))``."""
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
    """What is known about the parameters of torch's functions."""

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
        """Return what names the arguments of an operation of the dispatcher."""
        names = tuple(argument.name for argument in operation._schema.arguments)  # noqa: SLF001 - torch's public operations have no other way to tell
        return partial(bind_by_place, names=names)

    def of_function(self, name: str, function: Any, *, method: bool) -> Binder:
        """Return what names the arguments of a function, which goes by ``name``."""
        if isinstance(function, FunctionType):
            signature = _signature(function)
            if signature is not None:
                return partial(bind_by_signature, signature)
        overloads = self._overloads(function, method=method)
        names = UNTOLD.get(name) or self._example_names(function)
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
        """Return the parameters of torch's own stand-in for a function, none if it has none."""
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
        # To Python a bool is an int; to torch the two are apart.
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
    """Return the signature of a Python function, None where it does not tell any names."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # it wraps a function of C++
        return None
    first = next(iter(signature.parameters.values()), None)
    return None if first is not None and first.kind is _LOOSE else signature


MAX_FACTS: Final = 32_768
MAX_PARTS: Final = 2048
"""How long a key may become: lists of numbers to make a tensor of are described each time."""

MAX_RESULTS: Final = 1024
"""How many results of one call are recognised; ``item()`` can give any number."""


_NO_CALL: Final[tuple[int, list[int], list[Hashable]]] = (0, [], [])


class _Key(list[Any]):
    """A key in the making, and the tensors that were met on the way."""

    __slots__ = ("tensors",)

    def __init__(self) -> None:
        self.tensors: list[Any] = []


class TorchFingerprints(Fingerprints):
    """The keys of torch's calls and results; may be used by many threads."""

    def __init__(
        self, torch: ModuleType, tables: Callable[[], Tables], cache: DescriptionCache
    ) -> None:
        super().__init__(tables, cache)
        self._tensor = torch.Tensor
        self._strided = torch.strided
        self._parts: dict[Hashable, int] = {}
        self._numbers_of_parts = count(1)
        self._kinds = {torch.Tensor, torch.nn.Parameter}
        self._last = _NO_CALL
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
        """Return the key of a call, None if it has none."""
        key, kinds = _Key(), self._kinds
        key.append(op)
        self._last = _NO_CALL
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
                if arguments and not keywords:
                    self._last = (id(arguments), [id(live) for live in tensors], storages)
                if len({*storages}) != len(storages):
                    key.append(_sharing([id(live) for live in tensors], storages, 0))
        except NoFingerprint:
            return None
        return tuple(key)

    def result(self, known: CachedCase, live: Any, call: Call) -> Hashable:
        """Return the key of a result, None if it has none."""
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
        """Return the ids and storages of a call's tensors.

        A call that made no other one is the last that was seen. Its arguments are alive, so that
        no others have their id; the empty ones have, and keywords may differ besides.
        """
        number, ids, storages = self._last
        if number == id(call[0]) and not call[1]:
            return ids, storages
        tensors: list[Any] = []
        self._collect(tensors, call[0])
        self._collect(tensors, call[1])
        return [id(live) for live in tensors], _storages(tensors)

    def tidy(self) -> None:
        """Keep memory bounded; numbers of facts are never given twice."""
        if len(self._parts) > MAX_FACTS:
            self._parts.clear()

    def rule_for(self, kind: type) -> Rule:
        """Return the rule of a class; classes derived from a tensor's are tensors."""
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
            # Nested tensors have no size, and symbols among the sizes no hash.
            raise NoFingerprint from error
        if part is None:
            if live.is_quantized:
                # Its dtype says so, and no such facts ever get a number.
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


def _sharing(ids: list[int], storages: list[Hashable], first: int) -> Hashable:
    """Tell which tensors, from ``first`` on, are one with or share numbers with one before."""
    if len({*storages}) == len(storages):
        return None
    later = range(first, len(ids))
    return tuple([(ids.index(ids[at]), storages.index(storages[at])) for at in later])


def _storages(tensors: list[Any]) -> list[Hashable]:
    try:
        return [live.untyped_storage()._cdata for live in tensors]  # noqa: SLF001 - tells storages apart without reading them
    except Exception:  # noqa: BLE001 - some tensor has none to show; asked one by one below
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
    """Add nothing: the class, which is in the key, has one object only."""


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

MAX_OPS: Final = 8192

_BOOKKEEPING: Final = ("prim", "profiler")
"""Operations of the dispatcher that compute nothing."""

_SETTERS: Final = ("__set__", "__delete__")
_CHECKS: Final = "has_torch_function"


class ObservedOps:
    """The observed ops of functions and operations, each made at its first call.

    ``functions`` and ``operations`` hold what was found; None stands for what is no operation.
    ``nesting`` are the functions that may call other functions. ``faults`` counts those that
    could not be made out, whose calls are not recorded.
    """

    def __init__(self, torch: ModuleType, fingerprints: TorchFingerprints) -> None:
        self.functions: dict[Any, ObservedOp | None] = {}
        self.operations: dict[Any, ObservedOp | None] = {}
        self.nesting: set[Any] = set()
        self.faults: Counter[str] = Counter()
        self._torch = torch
        self._fingerprints = fingerprints
        self._signatures = Signatures(torch)
        self._resolve: Callable[[Any], str | None] = torch.overrides.resolve_name
        self._operations = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)  # noqa: SLF001 - these classes have no public name

    def function(self, function: Any) -> ObservedOp | None:
        """Return the observed op of a new function; None if it is no operation."""
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
        except Exception as error:  # noqa: BLE001 - the program must not meet our faults; they are counted
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
        if isinstance(function, FunctionType) and _CHECKS in _names(function):
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
        space, _, name = operation._schema.name.partition("::")  # noqa: SLF001 - as in Signatures
        if space in _BOOKKEEPING or not is_operation(name, private=True):
            return None
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
        return ObservedOp(op, bind, key, fingerprints.result, composite=composite)


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


__tracebackhide__ = True  # pytest shows the frames of the program, not those of this module

_UNMET: Final = object()
_BOOTSTRAP: Final = "_bootstrap_inner"
"""The method that every thread runs, whatever its class; the same in CPython 3.10 to 3.14."""


class TorchProbe:
    """The modes of one loaded torch; the caller installs and removes them."""

    def __init__(
        self,
        torch: ModuleType,
        listener: Listener,
        fingerprints: TorchFingerprints | None = None,
    ) -> None:
        """Report to ``listener``; ``fingerprints`` are made if nobody else keeps them tidy."""
        self.fingerprints = fingerprints or TorchFingerprints(
            torch, loaded_tables, DescriptionCache()
        )
        self._torch = torch
        self._listener = listener
        self._ops = ObservedOps(torch, self.fingerprints)
        self._switch = _Switch()
        self._make = _mode_maker(torch, self)
        self._installed: _Modes | None = None
        self._bootstrap: Any = None
        self._watched_bootstrap: Any = None

    @property
    def faults(self) -> Counter[str]:
        """What could not be named, and how often."""
        return self._ops.faults

    def install(self) -> None:
        """Watch this thread, and the threads that are started from now on."""
        if self._installed is not None:
            return
        self._switch.on = True
        self._installed = self._push()
        self._bootstrap = getattr(threading.Thread, _BOOTSTRAP)
        self._watched_bootstrap = self._watching(self._bootstrap)
        setattr(threading.Thread, _BOOTSTRAP, self._watched_bootstrap)
        os.register_at_fork(after_in_child=self._switch.turning_off())

    def remove(self) -> None:
        """Watch no more. Where other modes lie on top, the probe's own stay and pass calls on."""
        if self._installed is None:
            return
        self._switch.on = False
        # Somebody may have wrapped what is there now; ours then does nothing but pass on.
        if getattr(threading.Thread, _BOOTSTRAP) is self._watched_bootstrap:
            setattr(threading.Thread, _BOOTSTRAP, self._bootstrap)
        self._installed.pop()
        self._installed = None

    def pause(self) -> None:
        """Report nothing until ``resume``."""
        self._switch.on = False

    def resume(self) -> None:
        """Report again, if the probe is installed; also in a process that was forked off."""
        self._switch.on = self._installed is not None

    def __enter__(self) -> TorchProbe:
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

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
        """Return what reports a call of a public function."""
        ops, switch, listener = self._ops, self._switch, self._listener
        known, op_of, nesting = ops.functions, ops.function, ops.nesting
        begin, end, fail = listener.begin, listener.end, listener.fail
        unnoticed = self._torch._C.DisableTorchFunction  # noqa: SLF001 - has no public name
        current, frame_above = CURRENT.get, sys._getframe  # noqa: SLF001 - the only way to the caller's line
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

        return handle

    def operation_handler(self) -> Callable[..., Any]:
        """Return what reports a call of an operation by the dispatcher."""
        ops, switch, listener = self._ops, self._switch, self._listener
        known, op_of = ops.operations, ops.operation
        begin, end, fail = listener.begin, listener.end, listener.fail
        unnoticed = self._torch._C.DisableTorchFunction  # noqa: SLF001 - as above
        current, frame_above = CURRENT.get, sys._getframe  # noqa: SLF001 - as above
        run = _below_functions(self._torch)

        def handle(operation: Any, types: Any, arguments: Any, keywords: Any) -> Any:
            if not switch.on or current() is MUTED:
                return run(operation, types, arguments, keywords)
            observed: Any = known.get(operation, _UNMET)
            if observed is _UNMET:
                with unnoticed():
                    observed = op_of(operation)
            if observed is None:
                return run(operation, types, arguments, keywords)
            with unnoticed():
                entered = begin(observed, arguments, keywords, frame_above(2))
            try:
                result = run(operation, types, arguments, keywords)
            except BaseException as error:
                with unnoticed():
                    fail(entered, error)
                raise
            with unnoticed():
                end(entered, result)
            return result

        return handle


class _Switch:
    """Whether calls are reported; off in every process that is forked."""

    __slots__ = ("__weakref__", "on")

    def __init__(self) -> None:
        self.on = False

    def turning_off(self) -> Callable[[], None]:
        """Return what turns it off, and does not keep it: Python never forgets such a function."""
        reference = weakref.ref(self)

        def turn_off() -> None:
            switch = reference()
            if switch is not None:
                switch.on = False

        return turn_off


class _Modes:
    """A pair of modes of one thread.

    They are pushed as torch's own ``__enter__`` does it, except that this would also set flags
    which all threads share, and which make ``torch.compile`` step aside.
    """

    def __init__(self, torch: ModuleType, functions: Any, operations: Any) -> None:
        from torch.utils import _python_dispatch

        self._functions, self._operations = functions, operations
        self._overrides: Any = torch.overrides
        self._dispatch: Any = _python_dispatch
        self._thread = threading.get_ident()

    def push(self) -> None:
        """Put the modes on top of this thread's."""
        self._overrides._push_mode(self._functions)  # noqa: SLF001 - see the class
        self._dispatch._push_mode(self._operations)  # noqa: SLF001 - see the class

    def pop(self) -> None:
        """Take the modes away, each only if it is on top in the thread that pushed it."""
        if threading.get_ident() != self._thread:
            return
        if self._overrides._get_current_function_mode() is self._functions:  # noqa: SLF001 - torch has no public way to ask
            self._overrides._pop_mode()  # noqa: SLF001 - see the class
        if self._dispatch._get_current_dispatch_mode() is self._operations:  # noqa: SLF001 - torch has no public way to ask
            self._dispatch._pop_mode()  # noqa: SLF001 - see the class


def _mode_maker(torch: ModuleType, probe: TorchProbe) -> Callable[[], tuple[Any, Any]]:
    """Return what makes a pair of modes; their classes need torch and so are made here."""
    from torch.utils._python_dispatch import TorchDispatchMode

    call_function, call_operation = probe.function_handler(), probe.operation_handler()
    compiling = torch.compiler.is_compiling

    # What torch.compile reads of a mode's method must be plain: to it, ``compiling()`` is a fact.
    class FunctionMode(torch.overrides.TorchFunctionMode):  # type: ignore[name-defined,misc]  # torch is a parameter
        going: tuple[Any, ...] = ()

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if compiling():
                return func(*args, **(kwargs or {}))
            return call_function(self, func, types, args, kwargs or {})

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
            return call_operation(func, types, args, kwargs or {})

    return lambda: (FunctionMode(), OperationMode())


def _inside(torch: ModuleType) -> Callable[..., Any]:
    """Return what calls a function so that the functions which it calls are seen as well."""
    overrides, parts = torch.overrides, torch._C  # noqa: SLF001 - these have no public names
    skip = getattr(parts, "_skip_one_hop_torch_function", None)
    modes_below = parts._len_torch_function_stack  # noqa: SLF001 - as above
    disabled, plain = parts._disabled_torch_function_impl, {torch.Tensor}  # noqa: SLF001 - as above

    def is_plain(kind: Any) -> bool:
        return kind in plain or kind.__torch_function__ is disabled

    def inside(mode: Any, function: Any, types: Any, arguments: Any, keywords: Any) -> Any:
        # Skipping the hop would also skip other modes, and the classes' own functions.
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
    """Return what runs an operation again where function modes do not notice."""
    skip = getattr(torch._C, "_skip_one_hop_torch_function", None)  # noqa: SLF001 - as above
    noticing = torch._ops.OpOverload  # noqa: SLF001 - as above

    def run(operation: Any, types: Any, arguments: Any, keywords: Any) -> Any:
        # Without a mode nobody could notice, and the shorter way is taken.
        if skip is None or not isinstance(operation, noticing):
            return operation(*arguments, **keywords)
        return skip(operation, types, arguments, keywords)

    return run
