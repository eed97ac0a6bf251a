"""What a long trace adds to the memory of a process: ten million calls of ten thousand cases.

The recorder is driven by a pure Python operation, since ttnn would take many minutes for that.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

from optrove.capture.recorder import Recorder
from optrove.frameworks.probe_protocol import ObservedOp
from optrove.journal.writer import Journal

CALLS = 10_000_000
CASES = 10_000


def megabytes() -> float:
    """Return the memory that this process holds now, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def main() -> None:
    """Record, and print what memory and disk were taken."""
    observed = ObservedOp(
        "bench.op",
        lambda arguments, _: {"number": arguments[0], "name": "a configuration of some length"},
        lambda arguments, _: arguments,
        lambda *_: "result",
        composite=False,
    )
    frame = sys._getframe()  # noqa: SLF001 - what a probe hands over
    with tempfile.TemporaryDirectory() as name:
        before = megabytes()
        recorder = Recorder(Journal(Path(name), 0))
        start = time.perf_counter()
        for number in range(CALLS):
            entered = recorder.begin(observed, (number % CASES,), {}, frame)
            recorder.end(entered, number)
        seconds = time.perf_counter() - start
        added = megabytes() - before
        disk = sum(file.stat().st_size for file in Path(name).iterdir())
    print(f"{CALLS} calls of {CASES} cases: {added:.0f} MB of memory added")
    print(f"{disk / CALLS:.1f} bytes of disk and {seconds / CALLS * 1e6:.1f} us per call")


if __name__ == "__main__":
    main()
