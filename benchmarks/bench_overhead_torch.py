"""What tracing PyTorch costs, beside torch.profiler's ExecutionTraceObserver, in one process."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.profiler import ExecutionTraceObserver

import optrove

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 9
REPEATS = 50


def model_step() -> Callable[[], None]:
    """Return one step of training a small perceptron."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 16))
    inputs = torch.randn(32, 64)

    def step() -> None:
        model.zero_grad()
        torch.nn.functional.cross_entropy(
            model(inputs), torch.zeros(32, dtype=torch.long)
        ).backward()

    return step


def microseconds(step: Callable[[], None]) -> float:
    """Return the median time of one step."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter_ns()
        step()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / 1000


def observed(step: Callable[[], None], place: Path) -> float:
    """Return the time of a step under torch's own observer, which writes a file."""
    observer = ExecutionTraceObserver()
    observer.register_callback(str(place / "trace.json"))
    observer.start()
    try:
        return microseconds(step)
    finally:
        observer.stop()
        observer.unregister_callback()


def traced(step: Callable[[], None], place: Path) -> tuple[float, int]:
    """Return the time of a step under optrove, and the op calls of all steps."""
    with optrove.trace(place / "trove.db", backend="torch") as trace:
        step()
        found = microseconds(step)
    return found, trace.summary().accounting.observed


def main() -> None:
    """Measure all three in turns."""
    step = model_step()
    times: dict[str, list[float]] = {"untraced": [], "optrove": [], "ExecutionTraceObserver": []}
    calls = 0
    with tempfile.TemporaryDirectory() as name:
        for number in range(ROUNDS):
            place = Path(name) / str(number)
            place.mkdir()
            step()
            times["untraced"].append(microseconds(step))
            found, calls = traced(step, place)
            times["optrove"].append(found)
            times["ExecutionTraceObserver"].append(observed(step, place))
    per_step = calls / (REPEATS + 1)
    untraced = statistics.median(times["untraced"])
    print(f"a training step of {per_step:.0f} recorded calls")
    print(f"{'way':24} {'us/step':>9} {'us/call':>9} {'ratio':>9}")
    for way, found in times.items():
        median = statistics.median(found)
        added = (median - untraced) / per_step
        print(f"{way:24} {median:9.0f} {added:9.1f} {median / untraced:8.2f}x")


if __name__ == "__main__":
    main()
