"""Run a function once a module has been imported.

Nothing is imported here, and nothing is changed permanently: a finder on ``sys.meta_path`` waits
for the module and removes itself afterwards. Loaders of the protocol that Python 3.4 replaced
(``load_module`` without ``exec_module``) and packages without an ``__init__`` are not supported.
"""

from __future__ import annotations

import sys
import threading
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType


def when_imported(
    name: str,
    action: Callable[[ModuleType], object],
    *,
    on_fault: Callable[[Exception], object],
) -> Callable[[], None]:
    """Run ``action(module)`` once: now if the module is imported, else after its import.

    An import that fails runs nothing; the action then waits for the next one. Exceptions of the
    action go to ``on_fault``, never to the importing code. Several actions for one module run in
    the order of their requests. Return a function that cancels the request.
    """
    watch = _Watch(name, action, on_fault)
    sys.meta_path.insert(0, watch)
    # Looked up after the finder is in place, so that no import of another thread is missed.
    module = sys.modules.get(name)
    if module is not None:
        _run_when_imported(module, watch)
    return watch.stop


def _run_when_imported(module: ModuleType, watch: _Watch) -> None:
    spec = getattr(module, "__spec__", None)
    if not getattr(spec, "_initializing", False):
        watch.run(module)
        return
    # A thread, perhaps this one, is importing it.
    if isinstance(spec, _SpecInTheMaking):
        spec.__dict__[_WATCHES].append(watch)
    elif type(spec) is ModuleSpec:
        spec.__dict__[_WATCHES] = [watch]
        spec.__class__ = _SpecInTheMaking
    # The import may have ended just before its spec was changed.
    if not getattr(spec, "_initializing", False) and sys.modules.get(module.__name__) is module:
        watch.run(module)


class _Watch:
    """A finder that waits for one module."""

    def __init__(
        self,
        name: str,
        action: Callable[[ModuleType], object],
        on_fault: Callable[[Exception], object],
    ) -> None:
        self._name = name
        self._action = action
        self._on_fault = on_fault
        self._lock = threading.Lock()
        self._open = True

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Let the next finders find the module, and wrap its loader."""
        if name != self._name or not self._open:
            return None
        for finder in self._finders_behind():
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find and find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self)  # type: ignore[assignment]  # by its protocol
                return spec
        return None

    def run(self, module: ModuleType) -> None:
        """Run the action, unless it has run already or was canceled."""
        if not self._close():
            return
        try:
            self._action(module)
        except Exception as error:  # noqa: BLE001 - the importing code must not see our errors; they are reported
            self._on_fault(error)

    def stop(self) -> None:
        """Cancel the request; an action that ran is not undone."""
        self._close()

    def _close(self) -> bool:
        with self._lock:
            was_open, self._open = self._open, False
        if was_open:
            # By identity: other finders may define equality.
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        return was_open

    def _finders_behind(self) -> list[Any]:
        finders = list(sys.meta_path)
        places = [place for place, finder in enumerate(finders) if finder is self]
        return finders[places[0] + 1 :] if places else []


class _Loader:
    """A loader that replaces itself with the module's own loader when it is used."""

    def __init__(self, loader: Any, watch: _Watch) -> None:
        self._loader = loader
        self._watch = watch

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module with its own loader, then run the action."""
        spec: Any = module.__spec__
        # Before the code of the module runs, which may use its loader for source or resources.
        if spec is not None and spec.loader is self:
            spec.loader = self._loader
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = self._loader
        self._loader.exec_module(module)
        # A module may have replaced itself in sys.modules.
        self._watch.run(sys.modules.get(module.__name__, module))

    @property  # type: ignore[misc]  # for code that checks the class of the module's loader
    def __class__(self) -> Any:
        return type(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


_WATCHES = "__optrove_watches__"


class _SpecInTheMaking(ModuleSpec):
    """The spec of a module that is being imported; notices the end of the import.

    CPython 3.10 to 3.13 set ``_initializing`` to False after every import, also a failed one.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name != "_initializing" or value:
            return
        watches = self.__dict__.pop(_WATCHES)
        object.__setattr__(self, "__class__", ModuleSpec)
        module = sys.modules.get(self.name)
        # A failed import has removed the module by now; its watches keep waiting.
        if module is not None:
            for watch in watches:
                watch.run(module)
