"""The layout of journal files, and the lock of a journal that is being written.

A traced process writes two files, ``NAME.lines`` and ``NAME.calls``; a third one, ``NAME.configs``,
if it makes calls with arguments from a run configuration; and ``NAME.flow`` if the flow of tensors
is recorded (see ``flow.py``).

``NAME.lines`` is JSON Lines, appended and never changed. A line defines a number before anything
refers to it; each kind counts from one, and zero stands for nothing.

    {"format": "optrove-journal", "version": 1, "process": ..., "pid": ...,
     "started_ns": ..., "clock_ns": ...}          the header: wall clock and monotonic clock
    {"run": record}                               the Run, at its start and at its end
    {"value": 1, "is": value}                     an argument, or a tensor by itself
    {"case": 1, "op": ..., "arguments": {name: reference}, "opaque": [type, ...],
     "places": [name, ...]}                       the arguments that were passed by place
    {"outputs": 1, "are": [reference, ...]}
    {"site": 1, "file": ..., "line": ...}
    {"scope": 1, "test_id": ..., "phase": ..., "module": ..., "mode": ..., "device": {...}}
    {"error": 1, "text": ...}
    {"config": 1, "path": ..., "ops": [...]}      an entry of a run configuration and its ops
    {"reason": 1, "why": "filtered" | "untraceable", "text": ...}
    {"test": record}                              a TestResult
    {"sketch": call, "of": [...]}                 statistics of the tensors of one call
    {"capsule": call, "inputs": {key: [hash, ...]}}
                                                  the files of its inputs, before the call
    {"capsule": call, "outputs": {key: [hash, ...]}}
    {"capsules": {"kept": ..., "bytes": ..., "omitted": {reason: count}}}
    {"end": {"finished_at": ..., "exit_code": ..., "faults": {text: count}}}

A reference is the number of a value; or ``{"t": value, "i": identity, "s": storage, "d": device}``,
a tensor with the numbers that it has within its call; or ``{"is": value}``, the value itself.

``NAME.calls`` begins with a page that names the format; byte 16 of it holds the number of calls
that could not be recorded. One record of 48 bytes per observed call follows, at the position of
its ``op_index``, in the byte order of the machine:

    0   number of the case or reason (32 bits), kind (8), depth (16)     8 bytes
    8   site, scope                                                    4 + 4
    16  clock at entry, in nanoseconds; zero: not begun                8
    24  op_index of the parent plus one; zero: no parent               8
    32  clock at exit                                                  8
    40  number of the outputs or of the error                          4
    44  outcome; zero: unfinished                                      4

``NAME.configs`` begins with such a page too. Four bytes per call follow: the number of the config
entry from which its arguments were unpacked, or zero. Unpacking an entry stores its number at the
position of the next call; it counts if that call is one of the entry's ops.

The clock at entry is stored last at entry, and the outcome last at exit, each in one store. So the
record of a killed process reads as not begun or as unfinished, never as anything else.

A writer holds an exclusive lock on the lines file while it writes. The kernel releases the lock
when the process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import mmap
import struct
from datetime import datetime, timezone
from errno import ENOLCK, ENOSYS, EOPNOTSUPP
from typing import TYPE_CHECKING, Final

from optrove.errors import BadData, UnusableJournal
from optrove.model.records import CallOutcome, DeviceParameters, Phase, Scope
from optrove.serializer.records import record_from_builtins, record_to_builtins
from optrove.serializer.text import Json, found

if TYPE_CHECKING:
    from pathlib import Path


FORMAT: Final = "optrove-journal"
VERSION: Final = 1

LINES: Final = ".lines"
CALLS: Final = ".calls"
CONFIGS: Final = ".configs"

MAGIC: Final = b"optrove calls 1\n"
CONFIGS_MAGIC: Final = b"optrove configs1"
MARK: Final = struct.Struct("@I")
HEADER_SIZE: Final = mmap.ALLOCATIONGRANULARITY

LOST: Final = struct.Struct("@Q")
LOST_OFFSET: Final = 16

ENTRY: Final = struct.Struct("@QIIQ")
PARENT: Final = struct.Struct("@Q")
EXIT: Final = struct.Struct("@QII")
PARENT_OFFSET: Final = 24
EXIT_OFFSET: Final = 32
RECORD_SIZE: Final = 48
RECORD: Final = struct.Struct("@QIIQQQII")

# The kinds of numbers in a record.
CASE: Final = 1
OPAQUE: Final = 2
"""A case with an argument of an unknown type."""
FILTERED: Final = 3
"""A reason: the op was excluded."""
UNTRACEABLE: Final = 4
"""A reason: the call could not be described."""

RETURNED: Final = 1
RAISED: Final = 2
OUTCOMES: Final = {
    0: CallOutcome.UNFINISHED,
    RETURNED: CallOutcome.RETURNED,
    RAISED: CallOutcome.RAISED,
}

_MAX_HEADER_BYTES: Final = 10_000


def word(number: int, kind: int, depth: int = 0) -> int:
    """Return the first word of a record."""
    return number | kind << 32 | depth << 40


def find_journals(directory: Path) -> tuple[Path, ...]:
    """Return the lines files in a directory that have a complete header, the oldest first.

    A journal of which a part is no file is none: a pipe or device in a received directory hangs.
    """
    others = {path.stem for path in directory.glob("*.*") if not path.is_file()}
    found = (path for path in sorted(directory.glob(f"*{LINES}")) if path.stem not in others)
    return tuple(lines for lines in found if header_line(lines))


def header_line(lines: Path) -> bytes:
    """Return the first line of a journal; empty when it is not complete."""
    with lines.open("rb") as stream:
        first = stream.readline(_MAX_HEADER_BYTES)
    return first if first.endswith(b"\n") else b""


def calls_beside(lines: Path) -> Path:
    """Return the calls file of the journal with this lines file."""
    return lines.with_name(lines.name.removesuffix(LINES) + CALLS)


def configs_beside(lines: Path) -> Path:
    """Return the configs file of the journal with this lines file."""
    return lines.with_name(lines.name.removesuffix(LINES) + CONFIGS)


def number_of(first: int) -> int:
    """Return the number of the case or reason in the first word of a record."""
    return first & 0xFFFFFFFF


def kind_of(first: int) -> int:
    """Return the kind of the number in the first word of a record."""
    return first >> 32 & 0xFF


def has_case(first: int) -> bool:
    """Return whether the call with this first word has a case."""
    return first >> 32 & 0xFF in (CASE, OPAQUE)


def depth_of(first: int) -> int:
    """Return how many calls enclose the one with this first word."""
    return first >> 40


def lost_in(header: bytes) -> int:
    """Return how many calls were lost, from the first HEADER_SIZE bytes of a calls file."""
    if len(header) < HEADER_SIZE or not header.startswith(MAGIC):
        raise BadData.at("$", "the calls file has no header; was it overwritten?")
    (lost,) = LOST.unpack_from(header, LOST_OFFSET)
    return int(lost)


def moment_of(wall_ns: int) -> str:
    """Return a wall-clock time as text; BadData when it is out of range."""
    seconds, rest = divmod(wall_ns, 1_000_000_000)
    try:
        moment = datetime.fromtimestamp(seconds, timezone.utc)
    except (OverflowError, ValueError, OSError) as error:
        raise BadData.at("$", f"{wall_ns} ns is not a valid time") from error
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest // 1000:06}Z"


def scope_data(scope: Scope) -> dict[str, Json]:
    """Return a scope as JSON, without the fields that are None."""
    data = {
        "test_id": scope.test_id,
        "phase": scope.phase and scope.phase.value,
        "module": scope.module,
        "mode": scope.mode,
        "device": scope.device and record_to_builtins(scope.device),
    }
    return {name: value for name, value in data.items() if value is not None}


def scope_from(data: Json) -> Scope:
    """Return the scope that ``scope_data`` has written; BadData for anything else."""
    if type(data) is not dict:
        raise BadData.at("$", f"expected a scope, found {found(data)}")
    texts = {name: data.get(name) for name in ("test_id", "module", "mode")}
    for name, text in texts.items():
        if type(text) not in (str, type(None)):
            raise BadData.at("$", f"the {name} of a scope is {found(text)}")
    phase, device = data.get("phase"), data.get("device")
    if phase is not None and (type(phase) is not str or phase not in _PHASES):
        raise BadData.at("$", f"a test has no phase {found(phase)}")
    return Scope(
        **texts,
        phase=None if phase is None else _PHASES[phase],
        device=None if device is None else record_from_builtins(device, DeviceParameters),
    )


_PHASES: Final = {phase.value: phase for phase in Phase}

NO_LOCKS: Final = frozenset({ENOLCK, ENOSYS, EOPNOTSUPP})
"""The errors of file systems without locks."""


def hold_lock(number: int) -> None:
    """Lock an open lines file until every process that inherited it has closed it.

    Does nothing on a file system without locks; OSError when another process holds the lock.
    """
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def is_being_written(lines: Path) -> bool:
    """Return whether the process that writes this journal is still running.

    False on a file system without locks; UnusableJournal when the file cannot be opened.
    """
    try:
        with lines.open("rb") as stream:
            return _is_locked(stream.fileno())
    except OSError as error:
        raise UnusableJournal(f"the journal {lines} cannot be read: {error}") from error


def _is_locked(number: int) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno in NO_LOCKS:
            return False
        raise
    return False
