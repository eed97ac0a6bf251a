"""Measure on request what a verdict does not need: how long a warm call takes, and how much L1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optrove.backends.executing import Asked
from optrove.errors import NotReplayable
from optrove.model.records import Measurement, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from optrove.backends.executing import Executed, Executor
    from optrove.model.records import Job

WARM: Final = "e2e_ns"
"""How long a call takes once all that it needs is compiled and cached, in nanoseconds."""

PEAK_L1: Final = "peak_l1_bytes"
"""How many bytes of the L1 of one core are taken at most: by tensors, and by the op's buffers."""

EXTRAS: Final = (WARM, PEAK_L1)
_REPEATS: Final = 3
_RAN: Final = (Outcome.PASSED, Outcome.NUMERICS, Outcome.WRONG_SPEC)


def measure_extras(
    job: Job, outcome: Outcome, executor: Executor, again: Callable[[], Executed]
) -> tuple[tuple[Measurement, ...], tuple[str, ...]]:
    """Return what was measured of a Job that ran, and why something could not be.

    ``again`` executes it once more.
    """
    wanted = [name for name in job.metrics if name in EXTRAS]
    if not wanted or outcome not in _RAN:
        return (), ()
    ways = {
        WARM: lambda: _warm(again),
        PEAK_L1: lambda: executor.peak_l1(Asked(job.case, job.seed, job.outputs)),
    }
    found = [_measured(name, ways[name]) for name in wanted]
    measured = tuple(each for each in found if isinstance(each, Measurement))
    return measured, tuple(each for each in found if isinstance(each, str))


def _measured(name: str, way: Callable[[], int]) -> Measurement | str:
    try:
        return Measurement(name, way())
    except NotReplayable as error:
        return f"{name} was not measured: {error}"


def _warm(again: Callable[[], Executed]) -> int:
    """Return how long the shortest of a few calls took."""
    times = []
    for _ in range(_REPEATS):
        executed = again()
        if executed.raised is not None or executed.duration_ns is None:
            words = "" if executed.raised is None else executed.raised.text.partition("\n")[0]
            raise NotReplayable(f"a repeated call said {words or 'nothing'}")
        times.append(executed.duration_ns)
    return min(times)
