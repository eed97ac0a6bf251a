"""Find the run that is meant by the beginning of its id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optrove.errors import NotFound

if TYPE_CHECKING:
    from optrove.store.reader import TroveReader

_SHOWN: Final = 5


def run_named(reader: TroveReader, name: str) -> str:
    """Return the id of the one run that begins so; NotFound when there is none, or several."""
    found = reader.find_run(name)
    if len(found) == 1:
        return found[0]
    if found:
        shown = ", ".join(each[:16] for each in found[:_SHOWN])
        raise NotFound(
            f"{len(found)} runs begin with {name!r}: {shown}{', ...' * (len(found) > _SHOWN)}; "
            f"give more of the id"
        )
    raise NotFound(f"no run begins with {name!r}; list those there are with: optrove runs")
