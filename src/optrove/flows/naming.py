"""Find what is meant by a name that a person has written, and what comes near to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optrove.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.store.reader import TroveReader

_SHOWN: Final = 5
_ALIKE: Final = 0.55


def model_named(reader: TroveReader, name: str) -> str:
    """Return the one model that has this name, or a part of it; NotFound if none or several do."""
    known = reader.model_names()
    found = models_meant(name, known)
    if len(found) == 1:
        return found[0]
    if found:
        raise ambiguous(f"{len(found)} models have {name!r} in their names", found, "give more")
    raise unknown(f"no model here is called {name!r}", name, known, "optrove models")


def models_meant(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the model of this very name, or else all whose names have it in them."""
    every = tuple(known)
    if name in every:
        return (name,)
    return tuple(model for model in every if name and name.casefold() in model.casefold())


def near(name: str, known: Iterable[str]) -> str:
    """Return the names that are most like one, as a list to read; empty if none is."""
    from difflib import SequenceMatcher

    def likeness(other: str) -> float:
        whole = other.casefold()
        parts = {whole, whole.rpartition(".")[2], whole.rpartition("/")[2]}
        return max(SequenceMatcher(None, asked, part).ratio() for part in parts)

    asked = name.casefold().replace("::", ".")
    ranked = sorted(((likeness(other), other) for other in known), reverse=True)
    return ", ".join(other for ratio, other in ranked[:_SHOWN] if ratio >= _ALIKE)


def unknown(problem: str, name: str, known: Iterable[str], listing: str) -> NotFound:
    """Return the error for a name that means nothing here, with the nearest ones."""
    nearest = near(name, known)
    about = f"; the nearest: {nearest}" if nearest else ""
    return NotFound(f"{problem}{about}; list those there are with: {listing}")


def ambiguous(problem: str, found: Sequence[str], advice: str) -> NotFound:
    """Return the error for a name that means several things."""
    more = ", ..." if len(found) > _SHOWN else ""
    return NotFound(f"{problem}: {', '.join(found[:_SHOWN])}{more}; {advice}")
