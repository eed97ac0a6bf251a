"""Observe every call of a ttnn operation, and attach all patches of a trace.

Every registered operation is an object of one class and keeps the function that does the work in
an attribute, which is replaced. So a call is seen once, in ttnn's fast runtime mode and in its slow
one, and operators such as ``a + b`` are seen because they call operations. Tensor methods do not,
so those that compute or move something are listed in ``METHODS`` and replaced one by one.

Nothing is read from a device, so calls inside ttnn's trace capture can be observed as well.
``ttnn.Tensor(...)`` itself cannot be observed. ttnn removes ``queue_id`` from an operation's
arguments before they get here.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial, wraps
from inspect import unwrap
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol

from optrove.frameworks.probe_protocol import CURRENT, MUTED, FlowProbe, ObservedOp
from optrove.frameworks.ttnn.execute.files import without_directories
from optrove.frameworks.ttnn.ops import op_of
from optrove.frameworks.ttnn.probe.creation import Creations
from optrove.frameworks.ttnn.probe.fast_path import FastPaths, flow_stream, is_native
from optrove.frameworks.ttnn.probe.fingerprints import TtnnFingerprints, named_key, setter_patches
from optrove.frameworks.ttnn.probe.patching import PROBE_ATTRIBUTE, SHADOW_ATTRIBUTE
from optrove.frameworks.ttnn.signatures import Signatures, bind_all, bind_overloads, overloads_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from optrove.frameworks.probe_protocol import Listener
    from optrove.model.records import DeviceParameters
    from optrove.serializer.describe import DescriptionCache
    from optrove.serializer.tables import RecipeLookup, Tables


__tracebackhide__ = True  # pytest shows the frames of the program, not those of this module

METHODS: Final = (
    "cpu",
    "deallocate",
    "extract_shard",
    "item",
    "pad",
    "pad_to_tile",
    "reshape",
    "to",
    "to_list",
    "to_numpy",
    "to_torch",
    "to_torch_with_padded_shape",
    "unpad",
    "unpad_from_tile",
    "update_tensor_topology",
)
"""The tensor methods that are operations; the others return facts about a tensor."""

_SLOW_VERSION: Final = "_slow_operation"

_QUEUES: Final = ("queue_id", "cq_id")
"""``__call__`` removes the first of these arguments that is present."""

_NAMES: Final = ("__name__", "__qualname__", "__module__", "__doc__")


class TtnnProbe:
    """The replacements of one loaded ttnn; the caller installs and removes them."""

    def __init__(
        self, ttnn: ModuleType, listener: Listener, fingerprints: TtnnFingerprints
    ) -> None:
        self._ttnn = ttnn
        self._listener = listener
        self._fingerprints = fingerprints
        self._signatures = Signatures()
        state = listener.fast_path_state
        tensor = ttnn.Tensor
        stream = flow_stream(listener, tensor)
        self._fast_paths = None
        # In Python, the fast path does not record the flow.
        if state is not None and (stream is None or is_native()):
            self._fast_paths = FastPaths.of(listener, state, fingerprints, tensor, stream)
        self._flow = None if stream is None else FlowProbe(stream, fingerprints.tensors, named_key)
        self._new: list[tuple[Any, Any]] = []

    def patches(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield the patches: the owner, the name, and the replacement."""
        yield from self._above() if hasattr(self._ttnn, SHADOW_ATTRIBUTE) else self._inside()
        yield from setter_patches(self._fingerprints.mutable, self._fingerprints.changed)
        tensor = self._ttnn.Tensor
        for name in METHODS:
            if hasattr(tensor, name):
                yield tensor, name, self._observed_method(name, getattr(tensor, name))

    def _inside(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield the replacements of the functions within operations."""
        operation_class = self._ttnn.decorators.FastOperation
        for operation in registered(self._ttnn):
            yield operation, _worker(operation), self._observed_operation(operation)
            if hasattr(operation, _SLOW_VERSION):
                # Made with the original function. ttnn makes another one when it needs it, which is
                # dropped with the patches in turn.
                yield operation, _SLOW_VERSION, None
        yield (
            operation_class,
            "__post_init__",
            self._post_init(operation_class.__post_init__),
        )

    def _above(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield the replacements of ``__call__``: the shadow replaces the functions inside."""
        decorators = self._ttnn.decorators
        delegating = unwrap(decorators.FastOperation.__call__).__code__
        for kind in (decorators.FastOperation, decorators.Operation):
            yield kind, "__call__", self._observed_call(kind.__call__, delegating)

    def _observed_call(self, original: Any, delegating: Any) -> Any:
        recorders: dict[int, Any] = {}

        @wraps(original)
        def call(operation: Any, *arguments: Any, **keywords: Any) -> Any:
            frame = _frame_above(1)
            if frame is not None and frame.f_code is delegating:
                # A fast operation, whose call was seen, delegates to its slow version.
                return original(operation, *arguments, **keywords)
            record = recorders.get(id(operation))
            if record is None:
                observed = self._operation(operation, composite=True, bind=_bind_unqueued)
                record = self._record_any(observed, partial(original, operation))
                recorders[id(operation)] = record
            return record(frame, arguments, keywords)

        return call

    def _post_init(self, original: Any) -> Any:
        @wraps(original)
        def post_init(operation: Any) -> None:
            original(operation)
            self._new.append((operation, operation.function))
            operation.function = self._observed_operation(operation)

        return post_init

    def restore_new(self) -> None:
        """Restore the functions of operations that were registered meanwhile."""
        for operation, function in self._new:
            operation.function = function
            setattr(operation, _SLOW_VERSION, None)
        self._new.clear()

    def _observed_operation(self, operation: Any) -> Any:
        op: str = operation.python_fully_qualified_name
        composite = not operation.is_cpp_operation and not op_of(op).is_leaf
        observed = self._operation(operation, composite=composite)
        # The operation's own ``__call__`` is between this function and its caller.
        return self._replacement(observed, getattr(operation, _worker(operation)), frames=2)

    def _operation(self, operation: Any, *, composite: bool, bind: Any = bind_all) -> ObservedOp:
        op = operation.python_fully_qualified_name
        own = partial(bind, operation.function, self._signatures.of(operation))
        return self._observed_op(op, without_directories(op, own), composite=composite)

    def _observed_method(self, name: str, method: Any) -> Any:
        overloads = overloads_of(method)

        def bind(arguments: Any, keywords: Any) -> dict[str, Any]:
            own = {"self": arguments[0]} if arguments else {}
            return {**own, **bind_overloads(overloads, arguments[1:], keywords)}

        return self._replacement(self._observed_op(f"ttnn.Tensor.{name}", bind), method, frames=1)

    def _observed_op(self, op: str, bind: Any, *, composite: bool = False) -> ObservedOp:
        fingerprints = self._fingerprints
        key = partial(fingerprints.call, op)
        reads = op_of(op).returns_numbers
        return ObservedOp(
            op, bind, key, fingerprints.result, composite=composite, reads=reads, flow=self._flow
        )

    def _replacement(self, observed: ObservedOp, function: Any, *, frames: int) -> Any:
        record = self._record_any(observed, function)
        if observed.composite or self._fast_paths is None:
            return _named(lambda *a, **k: record(_frame_above(frames), a, k), function)
        invalidates = op_of(observed.op).changes_tensor
        wrapped = self._fast_paths.wrap(observed, function, record, frames, invalidates=invalidates)
        return _named(wrapped, function)

    def _record_any(self, observed: ObservedOp, function: Any) -> Callable[[Any, Any, Any], Any]:
        """Return a function that records any call of an operation."""
        begin, end, fail = self._listener.begin, self._listener.end, self._listener.fail
        invalidates, forget_all = op_of(observed.op).changes_tensor, self._fingerprints.forget_all

        def call(frame: Any, arguments: Any, keywords: Any) -> Any:
            if CURRENT.get() is MUTED:
                return function(*arguments, **keywords)
            entered = begin(observed, arguments, keywords, frame)
            if invalidates:
                forget_all((arguments, keywords))
            try:
                result = function(*arguments, **keywords)
            except BaseException as error:
                fail(entered, error)
                raise
            end(entered, result)
            return result

        return call


def _bind_unqueued(function: Any, overloads: Any, arguments: Any, keywords: Any) -> dict[str, Any]:
    """Bind the arguments of a call as its function gets them, without a queue."""
    queue = next((name for name in _QUEUES if name in keywords), None)
    left = {name: value for name, value in keywords.items() if name != queue}
    return bind_all(function, overloads, arguments, left)


def registered(ttnn: ModuleType) -> list[Any]:
    """Return all operations, each once: the registered ones, and those in ttnn's modules.

    ttnn's registry lacks some, such as ``ttnn.Tensor.__getitem__``, which a function wraps.
    """
    kinds = (ttnn.decorators.FastOperation, ttnn.decorators.Operation)
    found = [*ttnn.query_registered_operations(include_experimental=True)]
    operations = vars(ttnn.operations).values()
    modules = [module for module in operations if isinstance(module, ModuleType)]
    modules += [
        module
        for name, module in sys.modules.copy().items()
        if name.partition(".")[0] == "ttnn" and isinstance(module, ModuleType)
    ]
    for module in modules:
        members = list(vars(module).values())
        members += [vars(each).get("__wrapped__") for each in members if type(each) is FunctionType]
        found += [member for member in members if type(member) in kinds]
    return list({id(operation): operation for operation in found}.values())


def _worker(operation: Any) -> str:
    """Return the name of the attribute that holds the function of an operation.

    Operations that were registered in ttnn's slow mode are of another class, which wraps the
    function for good when it is made.
    """
    return "decorated_function" if hasattr(operation, "decorated_function") else "function"


def _frame_above(frames: int) -> FrameType | None:
    """Return a frame above the caller's own; None if no Python code called, as at exit."""
    try:
        return sys._getframe(frames + 1)  # noqa: SLF001 - the only way to the caller's line
    except ValueError:
        return None


def _named(replacement: Any, function: Any) -> Any:
    """Give a replacement the name of its function; a FastPath has it already."""
    if not isinstance(replacement, FunctionType):
        return replacement
    assigned = [name for name in _NAMES if isinstance(getattr(function, name, None), str)]
    return wraps(function, assigned=assigned, updated=())(replacement)


class Registry(Protocol):
    """The recorder's interface for an attachment, besides Listener."""

    cache: DescriptionCache
    recipes: RecipeLookup
    tidy: list[Callable[[], None]]

    @property
    def tables(self) -> Callable[[], Tables]:
        """Returns the converters of the loaded frameworks."""

    def remember(self, recall: Callable[[Any], Any]) -> None:
        """Use ``recall`` for tensors that need not be described again."""

    def fault(self, where: str, error: Exception) -> None:
        """Count an error of the tracing itself."""


class Attachment:
    """The patches of one trace on one loaded ttnn."""

    def __init__(self, ttnn: ModuleType, creations: Creations, probe: TtnnProbe) -> None:
        self._ttnn = ttnn
        self._creations = creations
        self._probe = probe
        self._undo = ExitStack()

    def install(self) -> None:
        """Install all patches, or none."""
        with ExitStack() as undo:
            for patches in (self._creations.patches, self._probe.patches):
                for owner, name, replacement in list(patches()):
                    undo.callback(setattr, owner, name, _current(owner, name))
                    setattr(owner, name, replacement)
            undo.callback(self._probe.restore_new)
            setattr(self._ttnn, PROBE_ATTRIBUTE, self)
            undo.callback(delattr, self._ttnn, PROBE_ATTRIBUTE)
            self._undo = undo.pop_all()

    def remove(self) -> None:
        """Remove all patches."""
        self._undo.close()


def attach(
    ttnn: ModuleType,
    listener: Listener,
    registry: Registry,
    opened: Callable[[DeviceParameters | None], None],
) -> Attachment:
    """Observe ttnn from now on: calls, recipes of handles, and opened devices."""

    def on_fault(text: str) -> None:
        registry.fault("recipes of handles", RuntimeError(text))

    creations = Creations(ttnn, opened, on_fault)
    fingerprints = TtnnFingerprints(ttnn, registry.tables, registry.cache, creations.number)
    registry.recipes = creations.recipe
    registry.tidy.append(fingerprints.tidy)
    registry.remember(fingerprints.recall)
    attachment = Attachment(ttnn, creations, TtnnProbe(ttnn, listener, fingerprints))
    attachment.install()
    return attachment


def _current(owner: Any, name: str) -> Any:
    """Return an attribute as its owner holds it, so that restoring it changes nothing."""
    members = vars(owner) if hasattr(owner, "__dict__") else {}
    return members[name] if name in members else getattr(owner, name)
