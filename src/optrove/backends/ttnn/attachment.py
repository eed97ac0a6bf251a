"""Put everything that watches ttnn in place, above the shadow, and take it away again."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

from optrove.backends.ttnn.creation import Creations
from optrove.backends.ttnn.fingerprints import TtnnFingerprints
from optrove.backends.ttnn.lifting import MARK
from optrove.backends.ttnn.probe import TtnnProbe

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from optrove.backends.base import RecipeLookup, Tables
    from optrove.backends.describe import DescriptionCache
    from optrove.backends.watching import Listener
    from optrove.model.records import DeviceParameters


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
