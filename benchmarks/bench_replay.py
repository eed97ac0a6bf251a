"""How fast cases are replayed, warm: by one worker and by two.

Without ``--store`` the cases are those of the encoder example, traced on a mock N300 just before.
All cases go round several times, and the second half of the rounds counts: by then nearly every
worker has met every case, so that two workers are as warm as one. The start of workers and devices
is reported separately. Two processes seldom get twice the work of one out of a machine, so the
same cases are also called in independent loops, in one process and in two at once. All four take
turns, and the best turn of each counts: on a shared machine turns may differ by a factor of two.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from optrove.model.records import DeviceKind, Job, Outcome, Query
from optrove.replay.planning import planned_cases
from optrove.replay.runner import run_jobs
from optrove.replay.worker import run_in_process
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from optrove.model.records import Attempt

EXAMPLE = Path(__file__).parents[1] / "examples" / "encoder" / "test_encoder.py"
ROUNDS = 8
TURNS = 3
LOOP = "--loop"


@dataclass(frozen=True, slots=True)
class Found:
    """Cases a second, once warm; and seconds: of this process a case, in all, to the first."""

    rate: float
    busy: float
    whole: float
    first: float
    passed: int


def main() -> None:
    """Replay the cases of a trove with one worker and with two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", help="trove whose cases are replayed")
    parser.add_argument("--board", default="n300")
    parser.add_argument(LOOP, action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.loop:
        print(_rate(run_in_process, _jobs(asked.store) * ROUNDS, asked.board).rate)
        return
    with tempfile.TemporaryDirectory() as name:
        store = asked.store or _traced(Path(name) / "trove.db")
        jobs = _jobs(store)
        print(f"{len(jobs)} cases, {ROUNDS} times each, on a mock {asked.board}")
        loops, rates = {1: 0.0, 2: 0.0}, {1: 0.0, 2: 0.0}
        for _ in range(TURNS):
            for count in (1, 2):
                loops[count] = max(loops[count], _loops(store, asked.board, count))
                rates[count] = max(rates[count], _told(jobs * ROUNDS, asked.board, count))
    print(f"loops of their own: {loops[1]:.1f} cases/s by one, {loops[2]:.1f} by two")
    print(
        f"two workers give {rates[2] / rates[1]:.2f} times the rate of one, "
        f"two loops {loops[2] / loops[1]:.2f} times, on {os.cpu_count()} processors"
    )


def _traced(store: Path) -> str:
    words = ["trace", str(EXAMPLE), "--board", "n300", "--store", str(store)]
    command = [sys.executable, "-m", "optrove", *words]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own command
    return str(store)


def _jobs(store: str) -> list[Job]:
    with open_reader(place_of(store)) as reader:
        query = Query(outermost_only=False, data_movement=True)
        return [planned.job for planned in planned_cases(reader, query)]


def _loops(store: str, board: str, count: int) -> float:
    """Return how many cases a second some processes call in all, each by itself."""
    words = [sys.executable, __file__, LOOP, "--store", store, "--board", board]
    loops = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)  # noqa: S603 - this file
        for _ in range(count)
    ]
    return sum(float(loop.communicate()[0].splitlines()[-1]) for loop in loops)


def _told(jobs: list[Job], board: str, workers: int) -> float:
    """Print how fast workers are, and return it."""
    found = _rate(partial(run_jobs, workers=workers), jobs, board)
    print(
        f"{workers} worker{'s' if workers > 1 else ' '}: {found.rate:6.1f} cases/s warm "
        f"({1e3 / found.rate:.2f} ms a case; the parent is busy for {found.busy * 1e3:.2f} ms "
        f"of it), {found.whole:5.1f} s in all, {found.first:4.1f} s to the first, "
        f"{found.passed} of {len(jobs)} passed"
    )
    return found.rate


def _rate(run: Callable[..., Iterator[Attempt]], jobs: list[Job], board: str) -> Found:
    """Replay all cases, and measure the second half."""
    began = time.perf_counter()
    moments = []
    passed = 0
    half = len(jobs) // 2
    busy = 0.0
    for attempt in run([replace(job, device_kind=DeviceKind.MOCK) for job in jobs], board=board):
        moments.append(time.perf_counter())
        passed += attempt.outcome is Outcome.PASSED
        if len(moments) == half:
            busy = time.process_time()
    count = len(moments) - half
    return Found(
        rate=count / (moments[-1] - moments[half - 1]),
        busy=(time.process_time() - busy) / count,
        whole=time.perf_counter() - began,
        first=moments[0] - began,
        passed=passed,
    )


if __name__ == "__main__":
    main()
