"""The state of a Run: running, complete, or why not all of it was done.

A Session is a process that executes the cases of a Run; a Run that is resumed has several. The
process is known by the boot of its machine, its namespace, its number and its start, so that
neither another machine nor a later process with the same number is taken for it. A process that
ends in order stores the ending; one that is gone without an ending was killed. A traced Run has
Sessions only for processes that could not record all of their calls.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from optrove.errors import BadTarget
from optrove.model.exit_codes import INTERRUPTED
from optrove.model.records import RunKind, now
from optrove.model.trove import RunProgress, RunState, Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optrove.model.records import Run
    from optrove.trove.database import Connection

_PROCESSES: Final = Path("/proc")
_BOOT: Final = _PROCESSES / "sys/kernel/random/boot_id"
_STATE: Final = 0
_START: Final = 19
"""The numbers of fields of ``/proc/PID/stat`` behind the name of the program."""
_DEAD: Final = ("Z", "X")

EXECUTED: Final = (RunKind.REPLAY, RunKind.SWEEP)
"""The kinds of Runs in which cases are executed."""


def new_session() -> Session:
    """Return the Session of this process, which begins now."""
    begun = now()
    pid = os.getpid()
    stat = _stat(pid)
    process = "" if stat is None else f"{_machine()} {pid} {stat[_START]}"
    return Session(begun, process, begun)


def is_alive(session: Session) -> bool | None:
    """Return whether the process of a Session exists; None if that cannot be known here."""
    machine, _, process = session.process.partition(" ")
    if not process or machine != _machine():
        return None
    pid, _, start = process.partition(" ")
    stat = _stat(int(pid))
    return stat is not None and stat[_START] == start and stat[_STATE] not in _DEAD


def _machine() -> str:
    """Return what tells processes of this boot and namespace from all others."""
    try:
        namespace = (_PROCESSES / "self/ns/pid").stat().st_ino
        return f"{_BOOT.read_text(encoding='ascii').strip()}:{namespace}"
    except OSError:
        return ""


def _stat(pid: int) -> list[str] | None:
    """Return the fields of a process behind its name; None if there is no such process."""
    try:
        text = (_PROCESSES / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def progress_of(
    run: Run, sessions: Sequence[Session], *, ended: bool, done: int, planned: int | None
) -> RunProgress:
    """Return the state of a Run; this alone decides it, for every command and page.

    ``ended`` tells whether all of its traced processes and calls ended in order, ``done`` and
    ``planned`` count its cases.
    """
    last = max(sessions, key=lambda session: session.begun_at, default=None)
    whole = done >= (planned or 0)
    return RunProgress(
        _state(run, last, ended=ended, whole=whole),
        done,
        planned,
        None if last is None else last.alive_at,
    )


def _state(run: Run, last: Session | None, *, ended: bool, whole: bool) -> RunState:
    if run.kind not in EXECUTED:
        if last is not None and last.ending is not None:
            return last.ending
        if not ended:
            return RunState.KILLED if run.finished_at is None else RunState.INCOMPLETE
        return RunState.INTERRUPTED if run.exit_code == INTERRUPTED else RunState.COMPLETE
    if run.finished_at is not None or (last is not None and whole):
        return RunState.COMPLETE if whole else RunState.INCOMPLETE
    if last is None:
        # An optrove that stored no Sessions made the Run.
        return RunState.UNKNOWN
    if last.ending is not None:
        return RunState.INCOMPLETE if last.ending is RunState.COMPLETE else last.ending
    alive = is_alive(last)
    if alive is None:
        return RunState.UNKNOWN
    return RunState.RUNNING if alive else RunState.KILLED


_HELD: Final = "SELECT begun_at, process, alive_at, ending FROM sessions WHERE run_key = :run_key"
_REPLACE: Final = """
UPDATE sessions SET alive_at = :alive_at, ending = :ending
WHERE run_key = :run_key AND begun_at = :begun_at AND process = :process
"""


def write_sessions(connection: Connection, run_key: int, sessions: Iterable[Session]) -> None:
    """Add Sessions of a Run; of two accounts of the same one, the later is kept."""
    every = tuple(sessions)
    rows = connection.fetch(_HELD, {"run_key": run_key}) if every else ()
    held = {each.key: each for each in map(session_from, rows)}
    for each in every:
        before = held.get(each.key)
        ending = None if each.ending is None else each.ending.value
        row = (run_key, each.begun_at, each.process, each.alive_at, ending)
        names = ("run_key", "begun_at", "process", "alive_at", "ending")
        if before is None:
            connection.insert(f"sessions ({', '.join(names)})", [row])
        elif before.rank < each.rank:
            connection.execute(_REPLACE, dict(zip(names, row, strict=True)))


def is_executed(connection: Connection, run_key: int, session: Session) -> bool:
    """Return whether another process than that of the Session executes a Run."""
    rows = connection.fetch(_HELD, {"run_key": run_key})
    others = (each for each in map(session_from, rows) if each.process != session.process)
    return any(each.ending is None and is_alive(each) for each in others)


def running_elsewhere(run: Run) -> BadTarget:
    """Return the error for a Run that another process executes."""
    return BadTarget(
        f"run {run.id[:12]} ({run.source}) goes on in another process; wait for it, or end that "
        f"process first"
    )


def session_from(row: Sequence[str | None]) -> Session:
    """Return the Session that a row of ``sessions`` describes, without the key of its Run."""
    begun_at, process, alive_at, ending = row
    known = None if ending is None else RunState(ending)
    return Session(str(begun_at), str(process), str(alive_at), known)
