"""Parse JSON documents of other programs, and count how well each file was understood."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from optrove.errors import BadData, Fault
from optrove.model.trove import Fidelity, Verbatim
from optrove.model.values import Opaque, key_step
from optrove.serializer.text import found, not_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from optrove.serializer.text import Json


MAX_FAULTS: Final = 100
"""How many faults of one file are listed."""

_MAX_EXAMPLE_CHARS: Final = 500
_MAX_DIGITS: Final = 4000


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A part of a document that is JSON, but of which a Python object would not keep everything.

    ``entries`` are those of an object that has a key twice.
    """

    problem: str
    entries: tuple[tuple[str, Json], ...] = ()


def parse(text: bytes) -> Json:
    """Return the data of a document; BadData with the line and column when it is not JSON.

    Unlike ``serializer.text.read`` this accepts NaN and Infinity, which Python's ``json`` writes.
    A key that an object has twice is refused, since one of its values would be lost.
    """
    document, unreadable = parse_parts(text)
    check_whole(unreadable)
    return document


def check_whole(unreadable: Sequence[Unreadable]) -> None:
    """Raise BadData if a document has parts that are not readable."""
    if unreadable:
        raise BadData.at("$", f"not readable: {unreadable[0].problem}")


def parse_parts(text: bytes) -> tuple[Json, Sequence[Unreadable]]:
    """Return the data of a document as ``parse`` does, and its parts that are not readable.

    Each of them is an Unreadable at its place.
    """
    unreadable: list[Unreadable] = []

    def unique(pairs: list[tuple[str, Json]]) -> Json:
        made = dict(pairs)
        if len(made) == len(pairs):
            return made
        unreadable.append(_repeated(pairs))
        return unreadable[-1]

    def whole(digits: str) -> Json:
        if len(digits) <= _MAX_DIGITS:
            return int(digits)
        problem = f"a number of {len(digits)} digits; the longest that is read has {_MAX_DIGITS:,}"
        unreadable.append(Unreadable(problem))
        return unreadable[-1]

    try:
        document = json.loads(text.decode("utf-8-sig"), object_pairs_hook=unique, parse_int=whole)
    except UnicodeDecodeError as error:
        raise BadData.at("$", not_text(error)) from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise BadData.at("$", f"not JSON at {where}: {error.msg}; is the file complete?") from error
    except RecursionError as error:
        raise BadData.at("$", "nested too deeply to be read; is this the right file?") from error
    return document, unreadable


def unreadable_parts(data: Json, path: str) -> Iterator[Fault]:
    """Yield a fault for each part of ``data`` that is not readable."""
    match data:
        case Unreadable(problem):
            yield Fault(path, problem)
        case dict():
            for key, item in data.items():
                yield from unreadable_parts(item, path + key_step(key))
        case list():
            for index, item in enumerate(data):
                yield from unreadable_parts(item, f"{path}[{index}]")


def _repeated(pairs: list[tuple[str, Json]]) -> Unreadable:
    keys = [key for key, _ in pairs]
    twice = next(key for key in keys if keys.count(key) > 1)
    return Unreadable(f"an object has the key {twice!a} twice; keep one of them", tuple(pairs))


def bad_file(faults: Iterable[Fault]) -> BadData:
    """Return the error with these faults; of very many only the first, and how many more."""
    listed = tuple(faults)
    if len(listed) > MAX_FAULTS:
        rest = Fault("$", f"{len(listed) - MAX_FAULTS} more faults are not listed")
        listed = (*listed[:MAX_FAULTS], rest)
    return BadData(listed)


def expected(what: str, path: str, data: Json) -> Fault:
    """Return the fault of ``data`` that is not ``what`` was expected."""
    return Fault(path, f"expected {what}, found {found(data)}")


@dataclass(frozen=True, slots=True)
class VerbatimPart:
    """A part that was kept as the file spells it, and its path."""

    kind: str
    path: str
    text: str


@dataclass(slots=True)
class PartNotes:
    """The notes about one part of a file; paths are relative to the part."""

    texts: list[str] = field(default_factory=list)
    verbatim: list[VerbatimPart] = field(default_factory=list)

    def add(self, *texts: str) -> None:
        """Note repairs and parts that are not kept."""
        self.texts += texts

    def keep(self, kind: str, data: Json, path: str) -> Opaque:
        """Return a part of unknown form as an Opaque with the text of the file."""
        text = _name(data if isinstance(data, str) else json.dumps(data))
        kind = _name(kind)
        self.verbatim.append(VerbatimPart(kind, path, text))
        return Opaque(kind, text)


def _name(text: str) -> str:
    """Return ``text`` as a name, which has no lone surrogates; JSON may have them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class FidelityCounter:
    """Sums up the notes about the configurations of one file."""

    __slots__ = (
        *("_configurations", "_counts", "_examples", "_notes", "_partly", "_refused"),
        *("_refusals", "_strict", "_unknown"),
    )

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._configurations = 0
        self._partly = 0
        self._refused = 0
        self._notes: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, tuple[str, str]] = {}
        self._unknown: list[Fault] = []
        self._refusals: list[Fault] = []

    def note(self, kind: str, count: int = 1) -> None:
        """Count a repair, or a part that is not kept."""
        self._notes[kind] += count

    def configuration(self, path: str, parts: Iterable[tuple[str, PartNotes]] = ()) -> None:
        """Count a configuration that was read in these parts, each with the step to it."""
        partly = False
        for step, part in parts:
            self._notes.update(part.texts)
            for each in part.verbatim:
                self._keep(each.kind, f"{path}{step}{each.path}", each.text)
                partly = True
        self._configurations += 1
        self._partly += partly

    def refused(self, kind: str, path: str, text: str) -> None:
        """Count a configuration that could not be read as a Case."""
        self._configurations += 1
        self._refused += 1
        self._keep(kind, path, text)

    def refuse(self, faults: Iterable[Fault]) -> None:
        """Count a configuration that has these faults, which costs this one only."""
        self._configurations += 1
        self._refused += 1
        self._refusals += faults

    def check(self) -> None:
        """Raise BadData with all faults if every configuration was refused, or with ``strict``."""
        if self._refusals and (self._strict or self._refused == self._configurations):
            raise bad_file(self._refusals)

    def _keep(self, kind: str, path: str, text: str) -> None:
        self._counts[kind] += 1
        self._examples.setdefault(kind, (path, text[:_MAX_EXAMPLE_CHARS]))
        if self._strict:
            self._unknown.append(Fault(path, f"{kind} has no known form: {text[:80]!a}"))

    def fidelity(self, file: str, form: str, cases: int) -> Fidelity:
        """Return the sum; with ``strict``, BadData lists all verbatim parts if there are any."""
        if self._unknown:
            raise bad_file(self._unknown)
        self.check()
        ranked = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        return Fidelity(
            file=file,
            format=form,
            configurations=self._configurations,
            cases=cases,
            understood=self._configurations - self._partly - self._refused,
            partly=self._partly,
            refused=self._refused,
            verbatim=tuple(Verbatim(kind, count, *self._examples[kind]) for kind, count in ranked),
            notes=tuple(sorted(self._notes.items())),
            refusals=tuple((fault.path, fault.problem) for fault in self._refusals[:MAX_FAULTS]),
        )
