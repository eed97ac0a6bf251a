"""Write ``--ops-jsonl``: one JSON line per op call, as soon as the call has ended.

Every line is one ``write`` to a file opened for appending, so that the processes of one session
share a file, and a killed process leaves at most its last line incomplete.
``optrove.serializer.op_lines`` describes the lines.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import defaultdict
from dataclasses import dataclass, field
from threading import Lock, get_ident
from typing import TYPE_CHECKING

from optrove.capture.sinks import op_error
from optrove.journal.format import moment_of
from optrove.serializer.hashes import CanonicalTexts, placement_hash
from optrove.serializer.op_lines import OpLine, op_line

if TYPE_CHECKING:
    from pathlib import Path

    from optrove.capture.sinks import Observed
    from optrove.model.case import Case


class OpLineWriter:
    """The sink of ``--ops-jsonl``; OSError if the file cannot be opened or written."""

    __slots__ = ("_descriptor", "_ids", "_numbers", "_texts")

    def __init__(self, path: Path) -> None:
        self._texts = CanonicalTexts()
        self._ids = CaseIds()
        self._numbers = TestNumbers()
        self._descriptor: int | None = _open(path)

    def completed(self, observed: Observed) -> None:
        """Append the line of one call."""
        if self._descriptor is None:
            raise ValueError("a call was handed to --ops-jsonl after its file was closed")
        _append(self._descriptor, op_line(self._line(observed), self._texts))

    def close(self) -> None:
        """Close the file; may be called twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _line(self, observed: Observed) -> OpLine:
        number, parent = self._numbers.of(observed)
        described, scope = observed.described, observed.scope
        return OpLine(
            run_id=observed.run_id,
            test_id=scope.test_id,
            module=scope.module,
            op_index=number,
            op=observed.op,
            inputs=described.inputs,
            keywords=described.keywords,
            output=described.output,
            error=None if observed.error is None else op_error(observed.error),
            parent=parent,
            depth=observed.depth,
            process=observed.process,
            started_at=moment_of(observed.started_ns),
            duration_ms=observed.duration_ns / 1e6,
            case_id=None if observed.case is None else self._ids.of(observed.case),
            phase=scope.phase,
            mode=scope.mode,
            call_site=observed.call_site,
        )


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    status = os.fstat(descriptor)
    incomplete = (
        stat.S_ISREG(status.st_mode)
        and status.st_size > 0
        and os.pread(descriptor, 1, status.st_size - 1) != b"\n"
    )
    if incomplete:
        # If another process was still writing that line, this becomes an empty line after it.
        os.write(descriptor, b"\n")
    return descriptor


def _append(descriptor: int, line: bytes) -> None:
    written = os.write(descriptor, line)
    if written == len(line):
        return
    # Ends the incomplete line, so that the next one is whole; on a full disk this raises.
    os.write(descriptor, b"\n")
    raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes of a line were written")


class CaseIds:
    """The placement hashes of recent Cases, by the Case object; keeps those objects alive."""

    __slots__ = ("_known", "_limit")

    def __init__(self, limit: int = 65_536) -> None:
        self._known: dict[int, tuple[Case, str]] = {}
        self._limit = limit

    def of(self, case: Case) -> str:
        """Return the hash of ``case``; computed once per object while it is cached."""
        known = self._known.get(id(case))
        if known is not None:
            return known[1]
        if len(self._known) >= self._limit:
            self._known.clear()
        computed = placement_hash(case)
        self._known[id(case)] = (case, computed)
        return computed


@dataclass(slots=True)
class _Open:
    """A call that has not ended yet; ``index``, from an inner call, is its index in the process."""

    number: int
    index: int | None


@dataclass(slots=True)
class _Count:
    """The calls of one test: the next number, and the open calls by thread and depth."""

    next: int = 0
    open: defaultdict[int, list[_Open]] = field(default_factory=lambda: defaultdict(list))

    def take(self) -> int:
        number = self.next
        self.next += 1
        return number


class TestNumbers:
    """Number the calls of each test from 0 in the order in which they began.

    Calls are seen when they end, so inner calls come first. The depth of the first one to end is
    the number of calls that are open around it; those get their numbers then.
    """

    __test__ = False  # not a test, despite its name
    __slots__ = ("_counts", "_lock")

    def __init__(self) -> None:
        self._counts: defaultdict[str | None, _Count] = defaultdict(_Count)
        self._lock = Lock()

    def of(self, observed: Observed) -> tuple[int, int | None]:
        """Return the number of a call, and the number of the call that made it, if any."""
        with self._lock:
            count = self._counts[observed.scope.test_id]
            around = count.open[get_ident()]
            number = _own(observed, around)
            del around[observed.depth :]
            _expect(observed, around, count)
            if number is None:
                number = count.take()
            parent = around[-1].number if around and observed.parent is not None else None
            if not around:
                del count.open[get_ident()]
            return number, parent


def _own(observed: Observed, around: list[_Open]) -> int | None:
    """Return the number that was reserved for a call when one within it ended."""
    if len(around) <= observed.depth:
        return None
    reserved = around[observed.depth]
    # Another index: the call that it was reserved for never ended.
    return reserved.number if reserved.index in (None, observed.op_index) else None


def _expect(observed: Observed, around: list[_Open], count: _Count) -> None:
    """Reserve numbers for the calls around ``observed``; the innermost may be another one now."""
    if around and len(around) == observed.depth and observed.parent is not None:
        if around[-1].index is None:
            around[-1].index = observed.parent
        elif around[-1].index != observed.parent:
            around.pop()
    while len(around) < observed.depth:
        around.append(_Open(count.take(), None))
    if around:
        around[-1].index = observed.parent
