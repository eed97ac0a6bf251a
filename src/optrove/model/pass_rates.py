"""The pass rate of cases and tests: of those that ran, the share that passed.

Every command, page and export uses it, so all of them give one number for the same run. What
failed as expected counts as passed, and so does what passed unexpectedly. What did not run is not
in the rate: ``not_run`` and ``not_attempted`` cases, and skipped tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optrove.model.records import NOT_ATTEMPTED, Outcome, TestOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping

_PASSED: Final = (
    Outcome.PASSED.value,
    TestOutcome.XFAILED.value,
    TestOutcome.XPASSED.value,
)
_NOT_RAN: Final = (Outcome.NOT_RUN.value, NOT_ATTEMPTED, TestOutcome.SKIPPED.value)


@dataclass(frozen=True, slots=True)
class PassRate:
    """How many cases or tests ran, and how many of these passed."""

    passed: int
    ran: int

    @classmethod
    def of(cls, counts: Mapping[str, int], xfailed: int = 0) -> PassRate:
        """Return the rate of counts by outcome, ``xfailed`` of which failed as expected."""
        ran = sum(count for name, count in counts.items() if name not in _NOT_RAN)
        return cls(sum(counts.get(name, 0) for name in _PASSED) + xfailed, ran)

    @property
    def share(self) -> float | None:
        """The share that passed, from 0 to 1; None if nothing ran."""
        return self.passed / self.ran if self.ran else None
