"""Write results as the files in tt-metal's ``results_export/`` have them: one object per vector."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from optrove.codec.text import read
from optrove.model.hidden import VECTORS
from optrove.model.records import Outcome
from optrove.report.attempted import measurement_data, said
from optrove.report.causes import without_numbers
from optrove.report.results import XFAILED, XPASSED, took

if TYPE_CHECKING:
    from optrove.codec.text import Json
    from optrove.model.records import Run
    from optrove.report.results import Result, RunResults, Waiting

_STATUSES: Final = {
    Outcome.PASSED.value: "PASS",
    Outcome.NUMERICS.value: "FAIL_ASSERT_EXCEPTION",
    Outcome.WRONG_SPEC.value: "FAIL_ASSERT_EXCEPTION",
    Outcome.REJECTED.value: "FAIL_ASSERT_EXCEPTION",
    Outcome.RAISED.value: "FAIL_ASSERT_EXCEPTION",
    Outcome.OUT_OF_MEMORY.value: "FAIL_L1_OUT_OF_MEM",
    Outcome.HUNG.value: "FAIL_CRASH_HANG",
    Outcome.CRASHED.value: "FAIL_CRASH_HANG",
    Outcome.NOT_RUN.value: "NOT_RUN",
    XFAILED: "XFAIL",
    XPASSED: "XPASS",
}
"""What tt-metal calls what came of a vector."""

_TRACED: Final = "model_traced"
_MS: Final = 1e6


def exported(found: RunResults) -> list[Json]:
    """Return an object for each case of a run, those that were not attempted last.

    The keys are tt-metal's; ``outcome`` and ``measurements`` are ours besides.
    """
    done = [_result(found.run, each) for each in found.results]
    return [*done, *(_waiting(found.run, each) for each in found.waiting)]


def sweep_names(op: str, suite: str | None) -> tuple[str, str]:
    """Return the names of the sweep and of the suite that a case belongs to in such files."""
    if not op.startswith(VECTORS):
        return op, suite or _TRACED
    module, _, last = op.removeprefix(VECTORS).rpartition(".")
    return module, suite or last


def _head(run: Run, op: str, case_id: str, suite: str | None) -> dict[str, Json]:
    sweep, named = sweep_names(op, suite)
    return {
        "sweep_name": sweep,
        "suite_name": named,
        "vector_id": case_id,
        "input_hash": case_id,
        "timestamp": run.started_at,
        "host": run.environment.host,
        "git_hash": run.environment.git_sha or "unknown",
        "device": run.environment.board,
    }


def _result(run: Run, result: Result) -> Json:
    attempt = result.attempt
    failed = attempt.outcome is not Outcome.PASSED
    time = took(attempt)
    parts = said(attempt)
    return {
        **_head(run, result.op, attempt.case_id, result.suite),
        "status": f"TestStatus.{_STATUSES[result.view]}",
        "message": parts.cause,
        "exception": attempt.detail if failed else None,
        "error_signature": _signature(parts.cause) if failed else None,
        "e2e_perf": None if time is None else time / _MS,
        "device_perf": None,
        "start_time_ts": attempt.started_at,
        "original_vector_data": _arguments(result.content),
        "outcome": attempt.outcome.value,
        "measurements": [measurement_data(each) for each in attempt.measurements],
    }


def _waiting(run: Run, case: Waiting) -> Json:
    return {
        **_head(run, case.op, case.case_id, case.suite),
        "status": "TestStatus.NOT_RUN",
        "message": "not attempted",
        "outcome": None,
    }


def _arguments(content: str) -> Json:
    data = read(content)
    return data.get("arguments") if isinstance(data, dict) else None


def _signature(cause: str | None) -> str | None:
    """Return what is equal for what failed alike, whatever the numbers."""
    if cause is None:
        return None
    return hashlib.sha256(without_numbers(cause).encode(errors="replace")).hexdigest()[:16]
