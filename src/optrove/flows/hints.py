"""Hint at what to do where tests fail for want of a board, or of numbers on a mock one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optrove.flows.doctor import DEVICE_DIRECTORY
from optrove.flows.grounds import has_board
from optrove.flows.launch import NO_TESTS, USAGE_ERROR
from optrove.model.records import DeviceKind, TestOutcome
from optrove.report.tables import plural

if TYPE_CHECKING:
    from optrove.report.summary import TraceSummary

TRACE: Final = "--"
PLUGIN: Final = "--optrove-"
"""How the options for boards begin: of ``optrove trace``, and of pytest."""

_WITHOUT_FAILURE: Final = (0, USAGE_ERROR, NO_TESTS)
"""Exit codes of programs and of pytest for which no missing board is to blame."""


def hints(summary: TraceSummary, exit_code: int, options: str = TRACE) -> tuple[str, ...]:
    """Return what to try after a traced program has failed; nothing if there is no telling."""
    kind = None if summary.run is None else summary.run.environment.device_kind
    if kind is DeviceKind.HARDWARE and _lacks_a_board(summary, exit_code):
        found = f"no Tenstorrent device was found in this machine (none in {DEVICE_DIRECTORY})"
        mock = f"{options}board NAME, such as {options}board n150; optrove boards lists them"
        return (f"{found}. To run on a mock board, add {mock}.",)
    if kind is DeviceKind.MOCK and summary.asserted:
        return (numbers_hint(summary.asserted, options),)
    return ()


def numbers_hint(asserted: int, options: str = TRACE) -> str:
    """Return the hint for tests in which assertions failed on a mock board without numbers."""
    failed = f"assertions failed in {plural(asserted, 'test')}"
    return (
        f"{failed}. A mock board computes no numbers, so that comparisons such as PCC fail; "
        f"{options}shadow has torch compute them."
    )


def _lacks_a_board(summary: TraceSummary, exit_code: int) -> bool:
    """Tell whether something has failed that a board would have been needed for."""
    if has_board() or exit_code in _WITHOUT_FAILURE:
        return False
    tests = dict(summary.tests)
    failed = sum(tests.get(each.value, 0) for each in (TestOutcome.FAILED, TestOutcome.ERROR))
    return not tests or failed > summary.asserted
