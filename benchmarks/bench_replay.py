"""How fast cases are replayed, warm: by one worker and by two.

Without ``--store`` the cases are those of the encoder example, traced on a mock N300 just before.
All cases go round several times, and the second half of the rounds counts: by then nearly every
worker has met every case, so that two workers are as warm as one, and what starting workers and
opening devices takes, which is told apart, is over. The parent needs a processor too: what it takes
is told, for on a machine with two of them it is missing to two workers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from optrove.flows.planning import How, planned_cases
from optrove.model.records import DeviceKind, Job, Outcome, Query
from optrove.run.runner import run_jobs
from optrove.store.place import place_of
from optrove.store.reader import open_reader

EXAMPLE = Path(__file__).parents[1] / "examples" / "encoder" / "test_encoder.py"
ROUNDS = 12


def main() -> None:
    """Replay the cases of a trove with one worker and with two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", help="trove whose cases are replayed")
    parser.add_argument("--board", default="n300")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        jobs = _jobs(asked.store or _traced(Path(name) / "trove.db"))
    print(f"{len(jobs)} cases, {ROUNDS} times each, on a mock {asked.board}")
    rates = {workers: _rate(jobs * ROUNDS, asked.board, workers) for workers in (1, 2)}
    print(
        f"two workers give {rates[2] / rates[1]:.2f} times the rate of one, "
        f"on {os.cpu_count()} processors that they share with their parent"
    )


def _traced(store: Path) -> str:
    words = ["trace", str(EXAMPLE), "--board", "n300", "--store", str(store)]
    command = [sys.executable, "-m", "optrove", *words]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - our own command
    return str(store)


def _jobs(store: str) -> list[Job]:
    with open_reader(place_of(store)) as reader:
        query = Query(outermost_only=False, hidden_ops=True)
        return [planned.job for planned in planned_cases(reader, query, How())]


def _rate(jobs: list[Job], board: str, workers: int) -> float:
    """Return how many cases a second were replayed once every worker was warm."""
    began = time.perf_counter()
    moments = []
    passed = 0
    half = len(jobs) // 2
    busy = 0.0
    for attempt in run_jobs(jobs, board=board, device_kind=DeviceKind.MOCK, workers=workers):
        moments.append(time.perf_counter())
        passed += attempt.outcome is Outcome.PASSED
        if len(moments) == half:
            busy = time.process_time()
    count = len(moments) - half
    rate = count / (moments[-1] - moments[half - 1])
    parent = (time.process_time() - busy) / count
    print(
        f"{workers} worker{'s' if workers > 1 else ' '}: {rate:6.1f} cases/s warm "
        f"({1e3 / rate:.2f} ms a case; the parent is busy for {parent * 1e3:.2f} ms of it), "
        f"{time.perf_counter() - began:5.1f} s in all, {moments[0] - began:4.1f} s to the first, "
        f"{passed} of {len(jobs)} passed"
    )
    return rate


if __name__ == "__main__":
    main()
