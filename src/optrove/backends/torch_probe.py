"""Report every call of a torch function and of an ATen operation, forward and backward.

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

import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

from optrove.backends.describe import DescriptionCache
from optrove.backends.frameworks import loaded_tables
from optrove.backends.torch_fingerprints import TorchFingerprints
from optrove.backends.torch_forms import Forms
from optrove.backends.watching import CURRENT, MUTED

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable
    from types import ModuleType

    from optrove.backends.watching import Listener

__tracebackhide__ = True  # pytest shows the frames of the program, not those of this module

_UNMET: Final = object()
_BOOTSTRAP: Final = "_bootstrap_inner"
"""The method that every thread runs, whatever its class; the same in CPython 3.10 to 3.14."""


class TorchProbe:
    """The modes of one loaded torch; whoever installs them also takes them back."""

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
        self._forms = Forms(torch, self.fingerprints)
        self._switch = _Switch()
        self._make = _mode_maker(torch, self)
        self._installed: _Modes | None = None
        self._bootstrap: Any = None
        self._watched_bootstrap: Any = None

    @property
    def faults(self) -> Counter[str]:
        """What could not be named, and how often."""
        return self._forms.faults

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
        forms, switch, listener = self._forms, self._switch, self._listener
        known, form_of, nesting = forms.functions, forms.function, forms.nesting
        begin, end, fail = listener.begin, listener.end, listener.fail
        unnoticed = self._torch._C.DisableTorchFunction  # noqa: SLF001 - has no public name
        current, frame_above = CURRENT.get, sys._getframe  # noqa: SLF001 - the only way to the caller's line
        inside = _inside(self._torch)

        def handle(mode: Any, function: Any, types: Any, arguments: Any, keywords: Any) -> Any:
            if not switch.on or current() is MUTED:
                return function(*arguments, **keywords)
            form: Any = known.get(function, _UNMET)
            if form is _UNMET:
                with unnoticed():
                    form = form_of(function)
            if form is None or function in mode.going:
                return function(*arguments, **keywords)
            with unnoticed():
                entered = begin(form, arguments, keywords, frame_above(2))
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
        forms, switch, listener = self._forms, self._switch, self._listener
        known, form_of = forms.operations, forms.operation
        begin, end, fail = listener.begin, listener.end, listener.fail
        unnoticed = self._torch._C.DisableTorchFunction  # noqa: SLF001 - as above
        current, frame_above = CURRENT.get, sys._getframe  # noqa: SLF001 - as above
        run = _below_functions(self._torch)

        def handle(operation: Any, types: Any, arguments: Any, keywords: Any) -> Any:
            if not switch.on or current() is MUTED:
                return run(operation, types, arguments, keywords)
            form: Any = known.get(operation, _UNMET)
            if form is _UNMET:
                with unnoticed():
                    form = form_of(operation)
            if form is None:
                return run(operation, types, arguments, keywords)
            with unnoticed():
                entered = begin(form, arguments, keywords, frame_above(2))
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
