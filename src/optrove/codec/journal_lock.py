"""Tell journals that are being written from those that were left behind.

A writer holds an exclusive lock on the lines file for as long as it writes. The kernel releases it
when the process ends, in whatever way, so that nothing has to be tidied up.
"""

from __future__ import annotations

import fcntl
from errno import ENOLCK, ENOSYS, EOPNOTSUPP
from typing import TYPE_CHECKING, Final

from optrove.errors import UnusableJournal

if TYPE_CHECKING:
    from pathlib import Path


NO_LOCKS: Final = frozenset({ENOLCK, ENOSYS, EOPNOTSUPP})
"""What file systems answer that know no locks."""


def hold_lock(number: int) -> None:
    """Lock an open lines file until it is closed in every process that has inherited it.

    Does nothing where the file system knows no locks; OSError when another process holds one.
    """
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def is_being_written(lines: Path) -> bool:
    """Tell whether the process that writes this journal is still at work.

    False also where the file system knows no locks, as its writer could not take one either;
    UnusableJournal when the file cannot be opened.
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
