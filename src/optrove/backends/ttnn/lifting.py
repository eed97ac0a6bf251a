"""Take what watches ttnn off for a moment, so that others can patch ttnn below it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

# Patches are for the whole process, so the loaded ttnn itself carries what stands on top.
MARK: Final = "__optrove_attachment__"
SHADOW_MARK: Final = "__optrove_shadow__"


class Liftable(Protocol):
    """Patches that can be taken away and put back."""

    def install(self) -> None:
        """Put all patches in place, or none."""

    def remove(self) -> None:
        """Take all patches away."""


@contextmanager
def lifted(ttnn: ModuleType) -> Iterator[None]:
    """Take the attachment off inside the block, so that others can patch below it."""
    attachment: Liftable | None = getattr(ttnn, MARK, None)
    if attachment is not None:
        attachment.remove()
    try:
        yield
    finally:
        if attachment is not None:
            attachment.install()
