"""Append rows to a CSV file that several processes may write to at once, and may be killed at.

A row is one line of the file, whatever its fields hold: line breaks and other control characters
are written as escapes.
"""

from __future__ import annotations

import csv
import fcntl
import io
import os
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from optrove.errors import UnusableResults

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]")
_CHUNK = 65536


class ResultsFile:
    """A CSV file with these columns."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path = path
        self._columns = tuple(columns)
        self._header = _line(self._columns)

    def prepare(self) -> None:
        """Make the file if there is none; raise UnusableResults where no row can be appended."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path) as file:
                found = os.pread(file, len(self._header), 0)
                if found == self._header:
                    return
                # A header that its writer could not finish is finished.
                torn = self._header.startswith(found) and os.fstat(file).st_size == len(found)
                if torn:
                    _write(file, self._header[len(found) :])
                    return
        except OSError as error:
            raise UnusableResults(
                f"cannot write results to {self.path}: {error.strerror}; choose another file"
            ) from error
        first = found.partition(b"\n")[0].decode(errors="replace")
        raise UnusableResults(
            f"{self.path} has other columns than the results of tests: it begins with "
            f"{first[:100]!r}; choose another file or move this one away"
        )

    def append(self, row: Mapping[str, str]) -> None:
        """Append one row; columns that it does not name stay empty. OSError if it cannot."""
        line = _line([row.get(column, "") for column in self._columns])
        with _locked(self.path) as file:
            _write(file, self._missing_before(file) + line)

    def _missing_before(self, file: int) -> bytes:
        """Return what has to be written before a row: a header, or the end of a torn line."""
        size = os.fstat(file).st_size
        if size == 0:
            return self._header
        torn = _last_line(file, size)
        if not torn:
            return b""
        # Inside quotes a line break would be part of the field, and swallow the next row.
        return b'"\n' if torn.count(b'"') % 2 else b"\n"


def _last_line(file: int, size: int) -> bytes:
    """Return what stands behind the last line break."""
    found = b""
    while size > 0:
        start = max(0, size - (_CHUNK if found else 1))
        before, line_break, after = os.pread(file, size - start, start).rpartition(b"\n")
        found = (after if line_break else before + after) + found
        if line_break:
            break
        size = start
    return found


def _line(fields: Sequence[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([_CONTROL.sub(_escape, one) for one in fields])
    return text.getvalue().encode(errors="backslashreplace")


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _write(file: int, data: bytes) -> None:
    # One call, unless the system takes only a part.
    while data:
        data = data[os.write(file, data) :]


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Open the file for appending, with no other process of ours at it."""
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)
