"""Report every call of a ttnn operation, and attach everything that watches.

Every registered operation is an object of one class and keeps the function that does the work in
an attribute, which is replaced; so a call is seen once, in ttnn's fast runtime mode and in its
slow one, and operators such as ``a + b`` are seen because they call operations. Tensor methods do
not, so those that compute or move something are named in ``METHODS`` and replaced one by one.

Nothing is read from a device, so that calls inside ttnn's trace capture can be watched as well.
``ttnn.Tensor(...)`` itself cannot be watched. ttnn takes ``queue_id`` out of an operation's
arguments before they come here.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial, wraps
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol

from optrove.frameworks.probe_protocol import CURRENT, MUTED, Form
from optrove.frameworks.ttnn.execute.files import without_directories
from optrove.frameworks.ttnn.probe import fingerprints as mutations
from optrove.frameworks.ttnn.probe.arguments import Signatures, bind_all, bind_overloads, read_stub
from optrove.frameworks.ttnn.probe.creation import Creations
from optrove.frameworks.ttnn.probe.fast_path import hurry
from optrove.frameworks.ttnn.probe.fingerprints import TtnnFingerprints
from optrove.frameworks.ttnn.probe.patching import MARK, SHADOW_MARK

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
"""The tensor methods that are operations; the others only tell something about a tensor."""

READING: Final = frozenset({"ttnn.Tensor.item", "ttnn.Tensor.to_list"})
"""Operations that return the numbers of a tensor as Python's own."""

ENDINGS: Final = frozenset(
    {"ttnn.deallocate", "ttnn.Tensor.deallocate", "ttnn.Tensor.update_tensor_topology"}
)
"""Operations after which a tensor is not what it was."""

LEAVES: Final = frozenset({"ttnn.deallocate"})
"""Operations that are written in Python and yet call no other; each is called often."""

_SLOW_TWIN: Final = "_slow_operation"

_QUEUES: Final = ("queue_id", "cq_id")
"""The arguments of which ``__call__`` takes the first one that is there for itself."""

_NAMES: Final = ("__name__", "__qualname__", "__module__", "__doc__")


class TtnnProbe:
    """The replacements of one loaded ttnn; whoever installs them also takes them back."""

    def __init__(
        self, ttnn: ModuleType, listener: Listener, fingerprints: TtnnFingerprints
    ) -> None:
        self._ttnn = ttnn
        self._listener = listener
        self._fingerprints = fingerprints
        self._signatures = Signatures()
        slots = listener.slots
        self._hurry = None if slots is None else hurry(listener, slots, fingerprints, ttnn.Tensor)
        self._new: list[tuple[Any, Any]] = []

    def patches(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield what to replace: the owner, the name, and the replacement."""
        yield from self._above() if hasattr(self._ttnn, SHADOW_MARK) else self._inside()
        yield from mutations.patches(self._fingerprints.mutable, self._fingerprints.changed)
        tensor = self._ttnn.Tensor
        for name in METHODS:
            if hasattr(tensor, name):
                yield tensor, name, self._watched_method(name, getattr(tensor, name))

    def _inside(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield the replacements of the functions within operations."""
        operation_class = self._ttnn.decorators.FastOperation
        for operation in registered(self._ttnn):
            yield operation, _worker(operation), self._watched_operation(operation)
            if hasattr(operation, _SLOW_TWIN):
                # Made with the function as it was; ttnn makes another one when it needs it, which
                # in turn is put away with the patches.
                yield operation, _SLOW_TWIN, None
        yield operation_class, "__post_init__", self._watching_new(operation_class.__post_init__)

    def _above(self) -> Iterator[tuple[Any, str, Any]]:
        """Yield the replacements of the calls of operations: the shadow hides what is inside."""
        decorators = self._ttnn.decorators
        handing_over = innermost(decorators.FastOperation.__call__).__code__
        for kind in (decorators.FastOperation, decorators.Operation):
            yield kind, "__call__", self._watched_call(kind.__call__, handing_over)

    def _watched_call(self, original: Any, handing_over: Any) -> Any:
        generals: dict[int, Any] = {}

        @wraps(original)
        def call(operation: Any, *arguments: Any, **keywords: Any) -> Any:
            frame = _frame_above(1)
            if frame is not None and frame.f_code is handing_over:
                # A fast operation, whose call was seen, leaves it to its slow twin.
                return original(operation, *arguments, **keywords)
            general = generals.get(id(operation))
            if general is None:
                form = self._operation_form(operation, composite=True, bind=_bind_unqueued)
                general = self._general(form, partial(original, operation))
                generals[id(operation)] = general
            return general(frame, arguments, keywords)

        return call

    def _watching_new(self, original: Any) -> Any:
        @wraps(original)
        def post_init(operation: Any) -> None:
            original(operation)
            self._new.append((operation, operation.function))
            operation.function = self._watched_operation(operation)

        return post_init

    def let_go(self) -> None:
        """Give the operations that were registered meanwhile their own functions back."""
        for operation, function in self._new:
            operation.function = function
            setattr(operation, _SLOW_TWIN, None)
        self._new.clear()

    def _watched_operation(self, operation: Any) -> Any:
        op: str = operation.python_fully_qualified_name
        composite = not operation.is_cpp_operation and op not in LEAVES
        form = self._operation_form(operation, composite=composite)
        # The operation's own ``__call__`` lies between this function and its caller.
        return self._watched(form, getattr(operation, _worker(operation)), frames=2)

    def _operation_form(self, operation: Any, *, composite: bool, bind: Any = bind_all) -> Form:
        op = operation.python_fully_qualified_name
        own = partial(bind, operation.function, self._signatures.of(operation))
        return self._form(op, without_directories(op, own), composite=composite)

    def _watched_method(self, name: str, method: Any) -> Any:
        signatures = getattr(innermost(method), "__nb_signature__", ())
        overloads = tuple(read_stub(signature[0]) for signature in signatures)

        def bind(arguments: Any, keywords: Any) -> dict[str, Any]:
            own = {"self": arguments[0]} if arguments else {}
            return {**own, **bind_overloads(overloads, arguments[1:], keywords)}

        return self._watched(self._form(f"ttnn.Tensor.{name}", bind), method, frames=1)

    def _form(self, op: str, bind: Any, *, composite: bool = False) -> Form:
        fingerprints = self._fingerprints
        key = partial(fingerprints.call, op)
        reads = op in READING
        return Form(op, bind, key, fingerprints.result, composite=composite, reads=reads)

    def _watched(self, form: Form, function: Any, *, frames: int) -> Any:
        general = self._general(form, function)
        if form.composite or self._hurry is None:
            return _named(lambda *a, **k: general(_frame_above(frames), a, k), function)
        ends = form.op in ENDINGS
        return _named(self._hurry.watch(form, function, general, frames, ends=ends), function)

    def _general(self, form: Form, function: Any) -> Callable[[Any, Any, Any], Any]:
        """Return what records any call of an operation."""
        begin, end, fail = self._listener.begin, self._listener.end, self._listener.fail
        ends, forget_all = form.op in ENDINGS, self._fingerprints.forget_all

        def call(frame: Any, arguments: Any, keywords: Any) -> Any:
            if CURRENT.get() is MUTED:
                return function(*arguments, **keywords)
            entered = begin(form, arguments, keywords, frame)
            if ends:
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
    """Name the arguments of a call as its function gets them, which is told of no queue."""
    queue = next((name for name in _QUEUES if name in keywords), None)
    left = {name: value for name, value in keywords.items() if name != queue}
    return bind_all(function, overloads, arguments, left)


def registered(ttnn: ModuleType) -> list[Any]:
    """Return all operations, each once: those that are registered, and those in ttnn's modules.

    ttnn's list lacks ``ttnn.Tensor.__getitem__``, for one, which is wrapped in a function.
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
    """Return the name of the attribute with what an operation calls.

    Operations that were registered in ttnn's slow mode are of another class, which wraps the
    function for good when it is made.
    """
    return "decorated_function" if hasattr(operation, "decorated_function") else "function"


def innermost(function: Any) -> Any:
    """Return what a function stands for, whoever has wrapped it."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def _frame_above(frames: int) -> FrameType | None:
    """Return a frame above the caller's own; None when no Python code has called, as at exit."""
    try:
        return sys._getframe(frames + 1)  # noqa: SLF001 - the only way to the caller's line
    except ValueError:
        return None


def _named(replacement: Any, function: Any) -> Any:
    """Give a replacement the name of what it stands for, unless it has that by itself."""
    if not isinstance(replacement, FunctionType):
        return replacement
    told = [name for name in _NAMES if isinstance(getattr(function, name, None), str)]
    return wraps(function, assigned=told, updated=())(replacement)


class Registry(Protocol):
    """What an attachment needs of the recorder besides being listened to."""

    cache: DescriptionCache
    recipes: RecipeLookup
    tidy: list[Callable[[], None]]

    @property
    def tables(self) -> Callable[[], Tables]:
        """What gives the converters of the frameworks that are loaded."""

    def remember(self, recall: Callable[[Any], Any]) -> None:
        """Take what tells about tensors that need not be described again."""

    def fault(self, where: str, error: Exception) -> None:
        """Count something that went wrong in the tracing itself."""


class Attachment:
    """The patches of one trace on one loaded ttnn."""

    def __init__(self, ttnn: ModuleType, creations: Creations, probe: TtnnProbe) -> None:
        self._ttnn = ttnn
        self._creations = creations
        self._probe = probe
        self._undo = ExitStack()

    def install(self) -> None:
        """Put all patches in place, or none."""
        with ExitStack() as undo:
            for patches in (self._creations.patches, self._probe.patches):
                for owner, name, replacement in list(patches()):
                    undo.callback(setattr, owner, name, _current(owner, name))
                    setattr(owner, name, replacement)
            undo.callback(self._probe.let_go)
            setattr(self._ttnn, MARK, self)
            undo.callback(delattr, self._ttnn, MARK)
            self._undo = undo.pop_all()

    def remove(self) -> None:
        """Take all patches away."""
        self._undo.close()


def attach(
    ttnn: ModuleType,
    listener: Listener,
    registry: Registry,
    opened: Callable[[DeviceParameters | None], None],
) -> Attachment:
    """Watch ttnn from now on, and tell of calls, of recipes and of devices."""

    def on_fault(text: str) -> None:
        registry.fault("what handles are made of", RuntimeError(text))

    creations = Creations(ttnn, opened, on_fault)
    fingerprints = TtnnFingerprints(ttnn, registry.tables, registry.cache, creations.number)
    registry.recipes = creations.recipe
    registry.tidy.append(fingerprints.tidy)
    registry.remember(fingerprints.recall)
    attachment = Attachment(ttnn, creations, TtnnProbe(ttnn, listener, fingerprints))
    attachment.install()
    return attachment


def _current(owner: Any, name: str) -> Any:
    """Return an attribute as it stands in its owner, so that putting it back changes nothing."""
    members = vars(owner) if hasattr(owner, "__dict__") else {}
    return members[name] if name in members else getattr(owner, name)
