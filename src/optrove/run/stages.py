"""At which stage of its Job a worker is: a word of memory that it shares with its parent.

The worker writes it before each stage, which takes no message; the parent looks when it wonders why
there is no answer, and when the worker has died.
"""

from __future__ import annotations

import mmap
import tempfile
import time
from typing import TYPE_CHECKING, Final

from optrove.backends.executing import Stage

if TYPE_CHECKING:
    from typing import IO

_STAGES: Final = (None, *Stage)
_BITS: Final = 4
_MASK: Final = (1 << _BITS) - 1


class Stages:
    """The stage of the Job in hand, and since when its time runs.

    The time for opening a device does not count: it runs anew when that begins and when it is
    over. Both sides read one clock, which all processes of a machine share.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, mmap.PAGESIZE)
        # One aligned word, so that stage and time are always of one moment.
        self._words = memoryview(self._memory).cast("Q")
        self._stage: Stage | None = None
        self._since = 0

    def tell(self, stage: Stage) -> None:
        """Say what is about to be done."""
        if self._stage in (None, Stage.OPENING) or stage is Stage.OPENING:
            self._since = time.monotonic_ns()
        self._stage = stage
        self._words[0] = (self._since << _BITS) | _STAGES.index(stage)

    def clear(self) -> None:
        """Say that nothing is in hand."""
        self._stage = None
        self._words[0] = time.monotonic_ns() << _BITS

    def read(self) -> tuple[Stage | None, float]:
        """Return the stage, and since when its time runs, as ``time.monotonic`` has it."""
        word = self._words[0]
        return _STAGES[word & _MASK], (word >> _BITS) / 1e9

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()
        self._memory.close()


def stages_file() -> IO[bytes]:
    """Return an open file without a name that holds the stages of one worker."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by whoever asked for it
    file.truncate(mmap.PAGESIZE)
    return file
