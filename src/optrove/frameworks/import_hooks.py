"""Run something once a module has been imported.

Nothing is imported here, and nothing is changed for good: a finder on ``sys.meta_path`` waits for
the one module and takes itself away afterwards. Loaders of the protocol that Python 3.4 replaced
(``load_module`` without ``exec_module``) and packages without an ``__init__`` are not watched.
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
    """Run ``action(module)`` once: now if the module is there, else when its import is done.

    An import that fails runs nothing, and the next one is waited for. What the action raises goes
    to ``on_fault`` and never to whoever imports. Several actions for one module run in the order
    in which they were asked for. Returns the function that takes the request back.
    """
    watch = _Watch(name, action, on_fault)
    sys.meta_path.insert(0, watch)
    # Looked up after the finder is in place, so that no import of another thread slips through.
    module = sys.modules.get(name)
    if module is not None:
        _attend(module, watch)
    return watch.stop


def _attend(module: ModuleType, watch: _Watch) -> None:
    spec = getattr(module, "__spec__", None)
    if not getattr(spec, "_initializing", False):
        watch.run(module)
        return
    # Some thread, perhaps this one, is in the middle of importing it.
    if isinstance(spec, _SpecInTheMaking):
        spec.__dict__[_WATCHES].append(watch)
    elif type(spec) is ModuleSpec:
        spec.__dict__[_WATCHES] = [watch]
        spec.__class__ = _SpecInTheMaking
    # It may have ended just before its spec was told to say so.
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
        """Let the finders behind this one find the module, and wrap the loader it comes with."""
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
        """Run the action, unless that has been done or is no longer wanted."""
        if not self._close():
            return
        try:
            self._action(module)
        except Exception as error:  # noqa: BLE001 - an importer must not meet our faults; they are handed on
            self._on_fault(error)

    def stop(self) -> None:
        """Wait no longer; an action that ran is not undone."""
        self._close()

    def _close(self) -> bool:
        with self._lock:
            was_open, self._open = self._open, False
        if was_open:
            # By identity: finders of others may have any idea of equality.
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
        return was_open

    def _finders_behind(self) -> list[Any]:
        finders = list(sys.meta_path)
        places = [place for place, finder in enumerate(finders) if finder is self]
        return finders[places[0] + 1 :] if places else []


class _Loader:
    """A loader that steps aside when it has been used: the module keeps its own."""

    def __init__(self, loader: Any, watch: _Watch) -> None:
        self._loader = loader
        self._watch = watch

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module as its own loader does, then run what waits for it."""
        spec: Any = module.__spec__
        # Before the module's code runs, which may ask for its own source or resources.
        if spec is not None and spec.loader is self:
            spec.loader = self._loader
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = self._loader
        self._loader.exec_module(module)
        # A module may have put another object in its place.
        self._watch.run(sys.modules.get(module.__name__, module))

    @property  # type: ignore[misc]  # who asks for the class of the loader means the module's own
    def __class__(self) -> Any:
        return type(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


_WATCHES = "__optrove_watches__"


class _SpecInTheMaking(ModuleSpec):
    """The spec of a module that is being imported: the import system says there when it is done.

    ``_initializing`` is set to False after every import, also a failed one, by all of CPython 3.10
    to 3.13.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if name != "_initializing" or value:
            return
        watches = self.__dict__.pop(_WATCHES)
        object.__setattr__(self, "__class__", ModuleSpec)
        module = sys.modules.get(self.name)
        # A failed import has taken the module away by now; its watches go on waiting.
        if module is not None:
            for watch in watches:
                watch.run(module)
