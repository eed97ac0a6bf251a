"""Read JSON documents of other programs, noting what was not understood."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from optrove.errors import BadData, Fault
from optrove.model.trove import Fidelity, Verbatim
from optrove.model.values import Opaque
from optrove.serializer.text import found

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.serializer.text import Json


MOST_FAULTS: Final = 100
"""How many faults of one file are listed."""


def parse(text: bytes) -> Json:
    """Return what a document says; BadData with the line and column when it is not JSON.

    Unlike ``codec.text.read`` this takes NaN and Infinity, which Python's own ``json`` writes. A
    key that an object has twice is refused, since one of its values would be lost.
    """
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise bad("$", f"not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise bad("$", f"not JSON at {where}: {error.msg}; is the file complete?") from error
    except RecursionError as error:
        raise bad("$", "nested too deeply to be read; is this the right file?") from error
    except ValueError as error:
        raise bad("$", f"not readable: {error}") from error


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"an object has the key {twice!a} twice; keep one of them")
    return made


def bad(path: str, problem: str) -> BadData:
    """Return the error with this one fault."""
    return BadData((Fault(path, problem),))


def bad_data(faults: Iterable[Fault]) -> BadData:
    """Return the error with these faults; of very many only the first, and how many more."""
    listed = tuple(faults)
    if len(listed) > MOST_FAULTS:
        rest = Fault("$", f"{len(listed) - MOST_FAULTS} more faults are not listed")
        listed = (*listed[:MOST_FAULTS], rest)
    return BadData(listed)


def expected(what: str, path: str, data: Json) -> Fault:
    """Return the fault of ``data`` that should have been something else."""
    return Fault(path, f"expected {what}, found {found(data)}")


_LONGEST_EXAMPLE: Final = 500


@dataclass(frozen=True, slots=True)
class Kept:
    """One thing that was kept as it is spelled, and where it is."""

    kind: str
    path: str
    text: str


@dataclass(slots=True)
class Reading:
    """What is noted while one part is read; paths are those within the part."""

    notes: list[str] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)

    def keep(self, kind: str, data: Json, path: str) -> Opaque:
        """Return something that has no known spelling in the words of the file."""
        text = _name(data if isinstance(data, str) else json.dumps(data))
        kind = _name(kind)
        self.kept.append(Kept(kind, path, text))
        return Opaque(kind, text)


def _name(text: str) -> str:
    """Return ``text`` as a name, which has no lone surrogates; JSON may have them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class Understanding:
    """Sums up what was noted about the configurations of one file."""

    __slots__ = ("_configurations", "_kept", "_notes", "_partly", "_refused", "strict", "unknown")

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.unknown: list[Fault] = []
        self._configurations = 0
        self._partly = 0
        self._refused = 0
        self._notes: Counter[str] = Counter()
        self._kept: dict[str, tuple[int, str, str]] = {}

    def note(self, kind: str, count: int = 1) -> None:
        """Count one repair, or something that is not kept."""
        self._notes[kind] += count

    def configuration(self, path: str, parts: list[tuple[str, Reading]]) -> None:
        """Count a configuration that was read in these parts, each with the step to it."""
        self._configurations += 1
        partly = False
        for step, reading in parts:
            self._notes.update(reading.notes)
            for kept in reading.kept:
                partly = True
                self._keep(kept.kind, f"{path}{step}{kept.path}", kept.text)
        self._partly += partly

    def refused(self, kind: str, path: str, text: str) -> None:
        """Count something that was to be a configuration and could not be made a Case."""
        self._configurations += 1
        self._refused += 1
        self._keep(kind, path, text)

    def _keep(self, kind: str, path: str, text: str) -> None:
        count, first, example = self._kept.get(kind, (0, path, text[:_LONGEST_EXAMPLE]))
        self._kept[kind] = (count + 1, first, example)
        if self.strict:
            self.unknown.append(Fault(path, f"{kind} has no known spelling: {text[:80]!a}"))

    def fidelity(self, file: str, form: str, cases: int) -> Fidelity:
        """Return the sum; BadData naming all that was kept as it is if ``strict``."""
        if self.unknown:
            raise bad_data(self.unknown)
        verbatim = sorted(self._kept.items(), key=lambda item: (-item[1][0], item[0]))
        return Fidelity(
            file=file,
            format=form,
            configurations=self._configurations,
            cases=cases,
            understood=self._configurations - self._partly - self._refused,
            partly=self._partly,
            refused=self._refused,
            verbatim=tuple(Verbatim(kind, *facts) for kind, facts in verbatim),
            notes=tuple(sorted(self._notes.items())),
        )
