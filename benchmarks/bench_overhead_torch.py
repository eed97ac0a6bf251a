"""What tracing PyTorch costs: CPU time beside torch's own tools, in turns, in one process.

The result and the number of calls of each ATen operation are compared with those under an empty
dispatch mode: they must be equal.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import tempfile
import time
from collections import Counter
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch_programs import PROGRAMS

import optrove
from optrove.capture.tracing import active_tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch_programs import Program

SECONDS = 0.25
UNTRACED, EMPTY, OPTROVE, PROFILER, OBSERVER = (
    "untraced", "empty dispatch mode", "optrove", "torch.profiler, shapes",
    "ExecutionTraceObserver",
)  # fmt: skip
UNCOUNTED = ("prim", "profiler")
"""Operations that only keep torch's own books; optrove does not record them."""


class Empty(TorchDispatchMode):
    """A dispatch mode that does nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Counting(TorchDispatchMode):
    """A dispatch mode that counts operations."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[f"torch.ops.{func}"] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def observed(place: Path) -> Iterator[None]:
    """Turn on torch's own observer, which writes a file."""
    observer = ExecutionTraceObserver()
    observer.register_callback(str(place / f"{time.monotonic_ns()}.json"))
    observer.start()
    try:
        yield
    finally:
        observer.stop()
        observer.unregister_callback()


def ways(place: Path) -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    """Return the compared ways to observe a program, by name."""
    return {
        UNTRACED: nullcontext,
        EMPTY: Empty,
        OPTROVE: lambda: optrove.trace(place / "trove.db", backend="torch"),
        PROFILER: partial(profile, activities=[ProfilerActivity.CPU], record_shapes=True),
        OBSERVER: partial(observed, place),
    }


def repeated(program: Program, repeats: int) -> float:
    """Return the CPU time of one run, of several in a row."""
    start = time.process_time()
    for _ in range(repeats):
        program()
    return (time.process_time() - start) / repeats


def digest(result: Any) -> str:
    """Return a hash of all tensors of a result, to the last bit."""
    text = hashlib.sha256()
    for each in result if isinstance(result, list) else [result]:
        text.update(repr((each.dtype, tuple(each.shape))).encode())
        text.update(each.contiguous().numpy().tobytes())
    return text.hexdigest()


def check(program: Program, place: Path) -> tuple[int, str]:
    """Compare result and operations with those of a dispatch mode; return their number."""
    counting = Counting()
    with counting:
        expected = program()
    with optrove.trace(place / "check.db", backend="torch") as trace:
        tracing = active_tracing()
        found = program()
        faults = dict(tracing.recorder.faults) if tracing else {}
    ours = Counter({each.op: each.calls for each in trace.summary().ops})
    theirs = Counter(
        {op: n for op, n in counting.seen.items() if op.split(".")[2] not in UNCOUNTED}
    )
    problems = [
        *(["other numbers"] if digest(found) != digest(expected) else []),
        *(f"{op}: {ours[op]} for {theirs[op]}" for op in ours | theirs if ours[op] != theirs[op]),
        *map(str, faults),
    ]
    return counting.seen.total(), ", ".join(problems) or "equal"


def measure(
    make: Callable[[], Program], rounds: int, place: Path
) -> dict[str, tuple[float, float]]:
    """Return the CPU time of one run under each way, measured in turns.

    Once while the program runs, and once with everything that comes after it: the events of the
    profiler, the trove of optrove.
    """
    torch.manual_seed(0)
    program = make()
    program()
    calls, verdict = check(program, place)
    repeats = max(1, round(SECONDS / repeated(program, 1)))
    times: dict[str, list[float]] = {}
    whole: dict[str, list[float]] = {}
    for _ in range(rounds):
        for way, mode in ways(place).items():
            start = time.process_time()
            with mode():
                program()  # first calls are learned
                times.setdefault(way, []).append(repeated(program, repeats))
            whole.setdefault(way, []).append((time.process_time() - start) / (repeats + 1))
    print(f"  {calls:,} operations; results and counts: {verdict}")
    return {way: (statistics.median(times[way]), statistics.median(whole[way])) for way in times}


def main() -> int:
    """Measure each program and print ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("programs", nargs="*", choices=[[], *PROGRAMS], default=[])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for name in asked.programs or PROGRAMS:
        print(name)
        with tempfile.TemporaryDirectory() as place:
            times = measure(PROGRAMS[name], asked.rounds, Path(place))
        untraced, empty = times[UNTRACED][0], times[EMPTY][0]
        for way, (running, whole) in times.items():
            print(
                f"  {way:24} {running * 1000:9.2f} ms {running / untraced:6.2f}x untraced "
                f"{running / empty:6.2f}x empty; to its end {whole / untraced:6.2f}x untraced"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
