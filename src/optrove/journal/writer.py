"""Write the journal of one process, so that it survives a sudden death.

Each line is written by one system call. Call records are stored into a memory-mapped window of a
file, so that the kernel keeps them even if the process dies. A window is allocated on disk before
it is mapped, since a store to a mapped hole on a full disk would end the process.

A number is in the journal before it is returned, so that every reference can be resolved. The
caches are bounded: a value that was dropped is written again under a new number, and readers see
from its content that it is the same.
"""

from __future__ import annotations

import mmap
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from errno import EBADF, ENOSPC
from operator import length_hint
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from optrove.errors import UnusableJournal
from optrove.journal.flow import FLOW, FLOW_MAGIC
from optrove.journal.flow import WINDOW_SIZE as FLOW_WINDOW_SIZE
from optrove.journal.format import (
    CALLS,
    CONFIGS,
    CONFIGS_MAGIC,
    FORMAT,
    HEADER_SIZE,
    LINES,
    LOST,
    LOST_OFFSET,
    MAGIC,
    MARK,
    RECORD_SIZE,
    VERSION,
    hold_lock,
    scope_data,
)
from optrove.model.values import Opaque, TensorSpec, TtnnPlacement, Value, walk
from optrove.serializer.describe import NUMBERED
from optrove.serializer.text import Json, write
from optrove.serializer.wire import encode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from optrove.model.case import NamedValues
    from optrove.model.records import Scope
    from optrove.serializer.describe import Describer


WINDOW_RECORDS: Final = 16_384
"""How many records are mapped at a time: a multiple of pages, and under a megabyte."""

WINDOW_SIZE: Final = WINDOW_RECORDS * RECORD_SIZE

_BEGUN: Final = ".begun"
_CLOSED: Final = -1


@dataclass(frozen=True, slots=True)
class Window:
    """A mapped part of the calls file, which begins with the record ``first``.

    ``places`` are those of the free records, from which ``take`` takes the next; StopIteration
    when all are taken.
    """

    first: int
    memory: mmap.mmap
    places: Iterator[int]
    take: Callable[[], int]

    @property
    def taken(self) -> int | None:
        """How many of its records are taken; None if that is all of them."""
        free = length_hint(self.places)
        return WINDOW_RECORDS - free if free else None

    def op_index(self, offset: int) -> int:
        """Return the index of the record at a place in this window."""
        return self.first + offset // RECORD_SIZE


class Journal:
    """The files of one process; ``write`` and ``window`` may be used by many threads."""

    def __init__(self, directory: Path, process: int, *first: Json) -> None:
        """Begin new files in ``directory``; UnusableJournal if that is not possible.

        ``first`` are the first lines after the header.
        """
        self.started_ns = time.time_ns()
        self.clock_ns = time.perf_counter_ns()
        self.process = process
        self.path = directory / f"{self.started_ns:020}-{os.getpid()}"
        self._lock = Lock()
        self._lines = self._calls = self._configs = self._flow = _CLOSED
        self._flow_windows = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._calls = self._create(CALLS, os.O_RDWR)
            os.write(self._calls, MAGIC.ljust(HEADER_SIZE, b"\0"))
            self.window = self._map(0)
            # Under its name only when it can be read, whenever the process may end.
            self._lines = self._create(_BEGUN, os.O_APPEND)
            hold_lock(self._lines)
            for data in (self._header(), *first):
                self.write(data)
            self._named(_BEGUN).rename(self._named(LINES))
        except OSError as error:
            self.close()
            raise UnusableJournal(
                f"the journal in {directory} cannot be written: {error}; "
                f"choose another directory or make room"
            ) from error

    def write(self, data: Json) -> None:
        """Append one line, or nothing and raise OSError when the disk does not take all of it."""
        line = write(data).encode("ascii") + b"\n"
        with self._lock:
            written = os.write(self._lines, line)
            if written != len(line):
                os.ftruncate(self._lines, os.fstat(self._lines).st_size - written)
                raise OSError(ENOSPC, f"only {written} of {len(line)} bytes could be written")

    def store_lost(self, count: int) -> None:
        """Store how many calls could not be recorded, where there is room on a full disk too."""
        with self._lock:
            if self._calls != _CLOSED:
                os.pwrite(self._calls, LOST.pack(count), LOST_OFFSET)

    def window_after(self, full: Window) -> Window:
        """Return the window that follows a full one; OSError when the disk is full."""
        with self._lock:
            if self.window is full:
                self.window = self._map(full.first + WINDOW_RECORDS)
            return self.window

    def map_configs(self, window: Window) -> mmap.mmap:
        """Return the part of the third file that belongs to a window; OSError on a full disk."""
        with self._lock:
            if self._configs == _CLOSED:
                self._configs = self._create(CONFIGS, os.O_RDWR)
                os.write(self._configs, CONFIGS_MAGIC.ljust(HEADER_SIZE, b"\0"))
            offset = HEADER_SIZE + window.first * MARK.size
            size = WINDOW_RECORDS * MARK.size
            os.posix_fallocate(self._configs, offset, size)
            return mmap.mmap(self._configs, size, offset=offset)

    def map_flow(self) -> mmap.mmap:
        """Return the next part of the file for the flow of tensors; OSError on a full disk."""
        with self._lock:
            if self._lines == _CLOSED:
                raise OSError(EBADF, "the journal is closed")
            if self._flow == _CLOSED:
                self._flow = self._create(FLOW, os.O_RDWR)
                os.write(self._flow, FLOW_MAGIC.ljust(HEADER_SIZE, b"\0"))
            offset = HEADER_SIZE + self._flow_windows * FLOW_WINDOW_SIZE
            os.posix_fallocate(self._flow, offset, FLOW_WINDOW_SIZE)
            self._flow_windows += 1
            return mmap.mmap(self._flow, FLOW_WINDOW_SIZE, offset=offset)

    def close(self) -> None:
        """Close the files; records of calls that have not ended stay unfinished."""
        with self._lock:
            self._close_files()

    def leave_to_parent(self) -> None:
        """Close the files in a process that was forked off, so that it does not keep their lock.

        Whatever thread held the lock of this object at the fork is not here to release it.
        """
        self._close_files()

    def _close_files(self) -> None:
        files = (self._lines, self._calls, self._configs, self._flow)
        # Other files may get these numbers, and another thread may still be writing.
        self._lines = self._calls = self._configs = self._flow = _CLOSED
        for number in files:
            if number != _CLOSED:
                os.close(number)

    def _header(self) -> Json:
        return {
            "format": FORMAT,
            "version": VERSION,
            "process": self.process,
            "pid": os.getpid(),
            "started_ns": self.started_ns,
            "clock_ns": self.clock_ns,
        }

    def _named(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def _create(self, suffix: str, flags: int) -> int:
        access = flags if flags & os.O_RDWR else flags | os.O_WRONLY
        return os.open(self._named(suffix), access | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def _map(self, first: int) -> Window:
        offset = HEADER_SIZE + first * RECORD_SIZE
        os.posix_fallocate(self._calls, offset, WINDOW_SIZE)
        memory = mmap.mmap(self._calls, WINDOW_SIZE, offset=offset)
        places = iter(range(0, WINDOW_SIZE, RECORD_SIZE))
        return Window(first, memory, places, places.__next__)


K = TypeVar("K", bound=Hashable)

MAX_REMEMBERED: Final = 8192
# A mixture of experts has tens of thousands of entries in its run configuration.
_LIMITS: Final = {"config": 262_144, "error": 64}
MAX_OPAQUE: Final = 100
"""How many cases of an op are kept whose arguments are of unknown types."""

_TOKEN: Final = re.compile(r'(?<=")[0-9a-f]{32}(?=")')
"""Facts that distinguish an opaque argument from others of its type."""

MAX_ERROR: Final = 20_000
"""How many characters of an exception's text are kept."""


Recall: TypeAlias = Callable[[Any], "tuple[TensorSpec, Hashable, Hashable, Any] | None"]
"""Given a live tensor: its spec, the identities of it and its buffer, and its device."""


def _nothing(_: Any) -> None:
    return None


@dataclass(frozen=True, slots=True)
class NumberedCase:
    """A case's number and arguments, and the unknown types among them.

    The number is zero if the op has too many cases with unknown types, and no similar one.
    """

    number: int
    arguments: NamedValues
    opaque: tuple[str, ...]


class Numbering:
    """The numbers of one journal; may be used by many threads."""

    def __init__(self, journal: Journal) -> None:
        self.recall: Recall = _nothing
        self._begin(journal)

    def _begin(self, journal: Journal) -> None:
        self._journal = journal
        self._lock = RLock()
        self._recalled: dict[int, tuple[int, TensorSpec]] = {}
        self._next: dict[str, int] = {}
        self._values: dict[Value, int] = {}
        self._cases: dict[str, int] = {}
        self._outputs: dict[str, int] = {}
        self._scopes: dict[Scope, int] = {}
        self._sites: dict[tuple[str, int], int] = {}
        self._reasons: dict[tuple[str, str], int] = {}
        self._errors: dict[str, int] = {}
        self._configs: dict[tuple[str, tuple[str, ...]], int] = {}
        self._opaque: Counter[str] = Counter()
        self._alike: dict[str, int] = {}

    def case(
        self,
        op: str,
        arguments: Mapping[str, Any],
        session: Describer,
        *,
        keep: bool = False,
        places: tuple[str, ...] = (),
    ) -> NumberedCase:
        """Return the number of a case; the arguments are described in the order of their names.

        In that order, because numbers of tensors are given on the way: however a call was
        spelled, they come out the same. With ``keep`` the description is returned as well.
        ``places`` are the parameters that were passed by place, in their order.
        """
        opaque: list[str] = []
        described: NamedValues = ()
        placed: dict[str, Json] = {"places": list(places)} if places else {}
        if keep:
            named = [(name, session.describe(arguments[name])) for name in sorted(arguments)]
            references = {name: self._reference(value, opaque) for name, value in named}
            described = tuple(named)
        else:
            references = {
                name: self._live(arguments[name], session, opaque) for name in sorted(arguments)
            }
        if opaque:
            data = {"arguments": references, "opaque": opaque, "op": op, **placed}
            return NumberedCase(self._opaque_case(op, data), described, tuple(opaque))
        data = {"arguments": references, "op": op, **placed}
        return NumberedCase(self._once("case", self._cases, data), described, ())

    def _opaque_case(self, op: str, data: dict[str, Json]) -> int:
        """Return the number of a case with opaque arguments; zero if its op has too many.

        No two such cases are equal. When an op has too many, a call counts as one more of the last
        case that differs in the opaque arguments only.
        """
        alike = _TOKEN.sub("", write(data))
        self._opaque[op] += 1
        if self._opaque[op] > MAX_OPAQUE:
            return self._alike.get(alike, 0)
        number = self._once("case", self._cases, data)
        if len(self._alike) >= MAX_REMEMBERED:
            self._alike.clear()
        self._alike[alike] = number
        return number

    def outputs(self, results: Iterable[Any], session: Describer) -> int:
        """Return the number of the results of a call, described after its arguments."""
        references = [self._live(each, session, []) for each in results]
        return self._once("outputs", self._outputs, {"are": references})

    def scope(self, scope: Scope) -> int:
        """Return the number of a scope."""
        return self._number("scope", self._scopes, scope, lambda: scope_data(scope))

    def site(self, file: str, line: int) -> int:
        """Return the number of a line of code."""
        data = {"file": file, "line": line}
        return self._number("site", self._sites, (file, line), lambda: data)

    def reason(self, why: str, text: str) -> int:
        """Return the number of why calls are recorded without a case."""
        data = {"why": why, "text": text}
        return self._number("reason", self._reasons, (why, text), lambda: data)

    def error(self, text: str) -> int:
        """Write an exception's text and return its number."""
        short = text if len(text) <= MAX_ERROR else f"{text[:MAX_ERROR]} ..."
        return self._number("error", self._errors, short, lambda: {"text": short})

    def config(self, path: str, ops: tuple[str, ...]) -> int:
        """Return the number of an entry of a run configuration."""
        key, data = (path, ops), {"path": path, "ops": list(ops)}
        return self._number("config", self._configs, key, lambda: data)

    def continue_in(self, journal: Journal) -> None:
        """Start again in another journal; the lock may be one that a fork left locked."""
        self._begin(journal)

    def _live(self, live: Any, session: Describer, opaque: list[str]) -> Json:
        """Return the reference to an object; a tensor that is known need not be described."""
        recalled = self.recall(live)
        if recalled is None:
            return self._reference(session.describe(live), opaque)
        spec, tensor, storage, device = recalled
        known = self._recalled.get(id(spec))
        if known is None:
            if len(self._recalled) >= MAX_REMEMBERED:
                self._recalled.clear()
            # With the object, so that its id stays its own.
            known = self._recalled[id(spec)] = (self._value(spec), spec)
        return {
            "t": known[0],
            "i": session.tensor_number(live, tensor),
            "s": session.storage_number(live, storage),
            "d": None if device is None else session.device_number(device),
        }

    def _reference(self, value: Value, opaque: list[str]) -> Json:
        if isinstance(value, TensorSpec):
            return self._tensor(value)
        numbered = [part for _, part in walk(value) if isinstance(part, NUMBERED)]
        if not numbered:
            return self._value(value)
        opaque += [part.type for part in numbered if isinstance(part, Opaque)]
        return {"is": encode(value)}

    def _tensor(self, spec: TensorSpec) -> Json:
        placement = spec.placement
        device = None
        if isinstance(placement, TtnnPlacement) and placement.device is not None:
            device = placement.device
            placement = replace(placement, device=0)
        alone = replace(spec, identity=0, storage=0, placement=placement)
        return {"t": self._value(alone), "i": spec.identity, "s": spec.storage, "d": device}

    def _value(self, value: Value) -> int:
        return self._number("value", self._values, value, lambda: {"is": encode(value)})

    def _once(self, kind: str, known: dict[str, int], data: dict[str, Json]) -> int:
        """Return the number of a line that is known by its own text."""
        return self._number(kind, known, write(data), lambda: data)

    def _number(
        self, kind: str, known: dict[K, int], key: K, data: Callable[[], dict[str, Json]]
    ) -> int:
        """Return the number of a line; write the line if it is new or was forgotten."""
        number = known.get(key)
        if number is not None:
            return number
        with self._lock:
            number = known.get(key)
            if number is None:
                number = self._next.get(kind, 0) + 1
                self._journal.write({kind: number, **data()})
                self._next[kind] = number
                if len(known) >= _LIMITS.get(kind, MAX_REMEMBERED):
                    known.clear()
                known[key] = number
            return number
