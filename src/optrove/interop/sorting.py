"""Sort more lines than memory holds: parts are sorted here, put aside in files, and merged."""

from __future__ import annotations

import heapq
import tempfile
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LINES_AT_ONCE: Final = 20_000


def sorted_lines(lines: Iterable[bytes], at_once: int = LINES_AT_ONCE) -> Iterator[bytes]:
    """Yield lines, which end with a newline, in the order of their bytes."""
    source = iter(lines)
    with ExitStack() as files:
        parts = []
        while part := sorted(islice(source, at_once)):
            file = files.enter_context(tempfile.TemporaryFile())
            file.writelines(part)
            file.seek(0)
            parts.append(file)
        yield from heapq.merge(*parts)
