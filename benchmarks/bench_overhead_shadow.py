"""What tracing costs on a mock board that computes numbers: processor time, in turns.

Tracing cannot be switched off in a process that has begun to trace, so each round is a process of
its own: one untraced, one traced. They run the workloads of ``bench_overhead.py``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from bench_overhead import workloads

import optrove

CALLS = 240
WAYS = ("untraced", "traced")


def measured(*, traced: bool) -> dict[str, float]:
    """Return the microseconds of processor time of a call in each workload: the best run."""
    times = {}
    with tempfile.TemporaryDirectory() as place:
        trace = optrove.trace(Path(place) / "trove.db") if traced else nullcontext()
        with trace, optrove.mock_board("n150", shadow=True):
            import torch  # the shadow's numbers, on one thread for comparable times
            import ttnn

            torch.set_num_threads(1)
            device = ttnn.open_device(device_id=0)
            for name, calls, run in workloads(ttnn, device):
                runs = []
                for _ in range(3 + max(8, CALLS // calls)):
                    start = time.process_time_ns()
                    run()
                    runs.append((time.process_time_ns() - start) / calls / 1000)
                times[name] = min(runs[3:])
            ttnn.close_device(device)
    return times


def main() -> None:
    """Measure both ways in turns, and print the best of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", choices=WAYS, help="measure one process, and print JSON")
    asked = parser.parse_args()
    if asked.way:
        print(json.dumps(measured(traced=asked.way == "traced")))
        return
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(asked.rounds):
        for way in WAYS:
            command = [sys.executable, __file__, "--way", way]
            done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - this file
            found[way].append(json.loads(done.stdout.splitlines()[-1]))
    print(f"{'workload':14} {'untraced':>9} {'traced':>9} {'added':>9} {'ratio':>9}")
    for name in found["untraced"][0]:
        plain, traced = (min(each[name] for each in found[way]) for way in WAYS)
        ratio = traced / plain
        print(f"{name:14} {plain:9.1f} {traced:9.1f} {traced - plain:9.1f} {ratio:8.2f}x")


if __name__ == "__main__":
    main()
