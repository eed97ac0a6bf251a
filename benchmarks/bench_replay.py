"""How fast cases are replayed: by one worker and by two, warm, and beside a bare loop.

Without ``--store`` the cases are those of the encoder example, traced on a mock N300 just before.
Rates are those between the first and the last attempt of a run, so that starting workers and
opening devices, which is told apart, does not count.
"""

from __future__ import annotations

import argparse
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
ROUNDS = 3


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
    print(f"two workers give {rates[2] / rates[1]:.2f} times the rate of one")


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
    """Return how many cases a second were replayed once all kernels were built."""
    began = time.perf_counter()
    moments = []
    passed = 0
    for attempt in run_jobs(jobs, board=board, device_kind=DeviceKind.MOCK, workers=workers):
        moments.append(time.perf_counter())
        passed += attempt.outcome is Outcome.PASSED
    warm = moments[len(moments) // ROUNDS :]
    rate = (len(warm) - 1) / (warm[-1] - warm[0])
    whole = time.perf_counter() - began
    first = moments[0] - began
    print(
        f"{workers} worker{'s' if workers > 1 else ' '}: {rate:6.1f} cases/s warm, "
        f"{whole:5.1f} s in all, {first:4.1f} s to the first, {passed} of {len(jobs)} passed"
    )
    return rate


if __name__ == "__main__":
    main()
