"""Tell faults of the machine from answers of the operation, by the words in which they come.

A host without memory, a driver whose windows are held elsewhere or a board that has fallen off its
bus say nothing about an operation: what they stop is NOT_RUN, with the reason.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Fault:
    """What a text in the words of an exception or of a dying process means."""

    text: re.Pattern[str]
    reason: str


def _fault(text: str, reason: str) -> Fault:
    return Fault(re.compile(text, re.IGNORECASE), reason)


FAULTS: Final = (
    _fault(r"no chips detected", "ttnn has found no board"),
    _fault(
        r"failed to allocate (the )?tlb|tt_tlb_alloc",
        "the driver's windows to the board are held by another process, or by one that was killed",
    ),
    _fault(r"sysmem mapped at unexpected", "another process holds the host memory of the board"),
    _fault(
        r"eth(ernet)? heartbeat|eth(ernet)? (core )?training",
        "the links between the chips did not come up; no kernel ran",
    ),
    _fault(
        r"read 0xffffffff (from|over)|you should reset the board|board should be reset",
        "the board does not answer any more",
    ),
    _fault(
        r"arc (core|message|msg)[^\n]*(time|fail)", "the board's own controller does not answer"
    ),
    _fault(r"no space left on device", "a disk of the host is full"),
    _fault(r"too many open files", "the host has no more file descriptors for this process"),
)
"""What ttnn, its driver and the host say when they are the ones that failed."""

_FROM_OUTSIDE: Final = {
    -signal.SIGKILL: (
        "it was killed from outside, most often because the host has no memory left "
        "(numbers of large tensors take it; fewer --jobs help)"
    ),
    -signal.SIGTERM: "it was ended from outside",
}


def machine_fault(text: str) -> str | None:
    """Return what is wrong with the machine, if these words are about it."""
    return next((fault.reason for fault in FAULTS if fault.text.search(text)), None)


def fatal_fault(exit_code: int, last_words: str) -> str | None:
    """Return what is wrong with the machine, if that has ended a process."""
    return _FROM_OUTSIDE.get(exit_code) or machine_fault(last_words)


def in_words(reason: str) -> str:
    """Return the first line of what is said about a Job that the machine has stopped."""
    return f"the machine failed, not the operation: {reason}"
