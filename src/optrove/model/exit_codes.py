"""The exit codes of commands: what makes a run of cases end with something else than 0.

Each case that did not pass gives one Reason, and ``--fail-on`` names those that count. The text
that a command prints and its exit code are made of the same counts, so they never differ.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from optrove.model.records import LOST, SKIPPED, UNCHECKED, TestOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from optrove.model.records import AttemptedCase

FAILED: Final = 1
COULD_NOT: Final = 2
INTERRUPTED: Final = 130
"""The exit code of a program that the user interrupted."""


class Reason(Enum):
    """Why a case, or a run of cases, is not simply good; the values are those of ``--fail-on``."""

    FAILED = "failed"
    """The operation failed: it raised, was rejected, or returned something wrong."""
    NOT_RUN = "not-run"
    """The machine or the software on it kept the case from running."""
    INCOMPLETE = "incomplete"
    """The run ended before it attempted the case."""
    WORSE = "worse"
    """The result is worse than that of an earlier run."""
    LOST = "lost"
    """The recording lost a value, without which the case cannot run."""
    SKIPPED = "skipped"
    """The sweep module declines the case, or there is nothing to check."""
    XPASSED = "xpassed"
    """The case passed in a suite that expects failures."""


FAIL_ON: Final = frozenset({Reason.FAILED, Reason.NOT_RUN, Reason.INCOMPLETE, Reason.WORSE})
"""The Reasons that count by default."""

_WORDS: Final = {
    Reason.FAILED: "failed",
    Reason.NOT_RUN: "not run",
    Reason.INCOMPLETE: "not attempted",
    Reason.WORSE: "worse than before",
    Reason.LOST: "not run because the recording lost a value",
    Reason.SKIPPED: "skipped",
    Reason.XPASSED: "passed unexpectedly",
}


def reason_of(attempted: AttemptedCase) -> Reason | None:
    """Return why a case is not simply good; None if it passed, or failed as expected."""
    if not attempted.attempt.is_whole:
        return Reason.INCOMPLETE
    if attempted.ran:
        unexpected = attempted.view == TestOutcome.XPASSED.value
        if attempted.passed:
            return Reason.XPASSED if unexpected else None
        return Reason.FAILED
    detail = attempted.attempt.detail or ""
    if detail.startswith(LOST):
        return Reason.LOST
    return Reason.SKIPPED if detail.startswith((SKIPPED, UNCHECKED)) else Reason.NOT_RUN


@dataclass(frozen=True, slots=True)
class Exit:
    """How a command for cases ends: the number of cases by Reason, and the Reasons that count.

    ``ran`` tells whether there is any answer. A run may be incomplete by zero cases, if nobody
    knows how many are missing.
    """

    ran: bool
    _: KW_ONLY
    reasons: Mapping[Reason, int] = field(default_factory=dict)
    fail_on: frozenset[Reason] = FAIL_ON
    interrupted: bool = False

    @classmethod
    def of(
        cls,
        attempts: Iterable[AttemptedCase],
        waiting: int = 0,
        fail_on: frozenset[Reason] = FAIL_ON,
        *,
        complete: bool = True,
        interrupted: bool = False,
    ) -> Exit:
        """Return how a command for these cases ends; ``waiting`` cases were not attempted."""
        every = list(attempts)
        counted = Counter(reason for each in every if (reason := reason_of(each)) is not None)
        if waiting or not complete:
            counted[Reason.INCOMPLETE] += waiting
        reasons = {reason: counted[reason] for reason in Reason if reason in counted}
        # A check that does not exist is an answer, too.
        ran = any(each.ran or (each.attempt.detail or "").startswith(UNCHECKED) for each in every)
        return cls(ran, reasons=reasons, fail_on=fail_on, interrupted=interrupted)

    @property
    def counting(self) -> dict[Reason, int]:
        """The Reasons that make the exit code 1, with their cases."""
        return {reason: self.reasons[reason] for reason in self.reasons if reason in self.fail_on}

    @property
    def code(self) -> int:
        """The exit code."""
        if self.interrupted:
            return INTERRUPTED
        if not self.ran:
            return COULD_NOT
        return FAILED if self.counting else 0

    @property
    def text(self) -> str | None:
        """The exit code and its reasons in words; None if all is simply good."""
        ignored = {reason: self.reasons[reason] for reason in self.reasons.keys() - self.fail_on}
        ignored_text = _text({reason: ignored[reason] for reason in Reason if reason in ignored})
        begin = f"exit code {self.code}"
        if not self.ran and not self.interrupted:
            return f"{begin}: no case ran"
        if self.code:
            return f"{begin}: {_text(self.counting) or 'interrupted'}"
        return f"{begin}; not counted by --fail-on: {ignored_text}" if ignored else None


def _text(reasons: Mapping[Reason, int]) -> str:
    return ", ".join(
        f"{count:,} {_WORDS[reason]}" if count else reason.value
        for reason, count in reasons.items()
    )
