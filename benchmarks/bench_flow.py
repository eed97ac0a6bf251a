"""What --flow and --capsule add to the cost of a trace, in turns, in one process.

ttnn runs on a mock N150 without numbers, so that capsules are measured with PyTorch. The last lines
say how much deduplication and compression save of the capsules of two models: a PyTorch decoder,
and the Llama example on two mock chips with numbers, in a process of its own.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from bench_overhead import workloads
from torch_programs import PROGRAMS

import optrove
from optrove.journal.capsules import TensorFiles
from optrove.trove.capsules import capsules_beside, capsules_of, digests_of
from optrove.trove.place import place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SECONDS = 0.25
PLAIN, FLOW = "traced", "with flow"
WAYS: Mapping[str, Mapping[str, Any]] = {PLAIN: {}, FLOW: {"flow": True}}
CAPSULE_WAYS: Mapping[str, Mapping[str, Any]] = {
    **WAYS,
    "capsules of one op": {"capsule": ["mm"]},
    "capsules of all": {"capsule": ["all"], "capsule_limit": "4GB"},
}


def repeated(run: Callable[[], Any], repeats: int) -> float:
    """Return the CPU time of one run, of several in a row."""
    start = time.process_time()
    for _ in range(repeats):
        run()
    return (time.process_time() - start) / repeats


def compare(
    run: Callable[[], Any], ways: Mapping[str, Mapping[str, Any]], rounds: int, backend: str
) -> dict[str, float]:
    """Return the median CPU time of a run for each way to trace it."""
    run()
    repeats = max(1, round(SECONDS / max(repeated(run, 1), 1e-6)))
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as place:
        numbers = count()
        for _ in range(rounds):
            for way, options in ways.items():
                store = Path(place) / f"{next(numbers)}.db"
                with optrove.trace(store, backend=backend, **options):
                    run()  # first calls are learned
                    times.setdefault(way, []).append(repeated(run, repeats))
    return {way: statistics.median(each) for way, each in times.items()}


def show(name: str, calls: int | None, times: Mapping[str, float]) -> None:
    """Print one program's times, relative to a plain trace."""
    each = "" if calls is None else f", {calls} calls"
    print(f"{name}{each}")
    for way, seconds in times.items():
        print(f"  {way:20} {seconds * 1000:9.3f} ms {seconds / times[PLAIN]:6.2f}x")


def trace_decoder(store: Path) -> None:
    """Keep the capsules of all calls of a PyTorch decoder."""
    run = next(iter(PROGRAMS.values()))()
    with optrove.trace(store, backend="torch", capsule=["all"], capsule_limit="4GB"):
        run()


def trace_llama(store: Path) -> None:
    """Keep the capsules of all calls of the Llama example."""
    example = Path(__file__).parents[1] / "examples" / "llama"
    words = ["trace", str(example), "--board", "n300", "--shadow", "--capsule", "all:8GB"]
    command = [sys.executable, "-m", "optrove", *words, "--store", str(store)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own words


def show_sizes(name: str, trace: Callable[[Path], None]) -> None:
    """Print how large the capsules of all calls are, as tensors and as files."""
    with tempfile.TemporaryDirectory() as place:
        store = Path(place) / "trove.db"
        trace(store)
        files = TensorFiles(capsules_beside(store))
        sizes = {digest: len(files.read(digest)) for digest in files}
        on_disk = sum(path.stat().st_size for path in files.directory.iterdir())
        capsules = [each for found in capsules_of(place_of(str(store))).values() for each in found]
        referred = sum(sizes[digest] for each in capsules for digest in digests_of(each))
    print(
        f"{name}, capsules of {len(capsules):,} calls: {referred / 1e6:,.1f} MB of tensors, "
        f"{sum(sizes.values()) / 1e6:,.1f} MB of distinct ones, {on_disk / 1e6:,.1f} MB of files"
    )


def main() -> int:
    """Print the cost of tracing, and the sizes of capsules."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", action="store_true", help="sizes of capsules only")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if not asked.sizes:
        measure(asked.rounds)
    show_sizes("torch, decoder", trace_decoder)
    show_sizes("ttnn, Llama example", trace_llama)
    return 0


def measure(rounds: int) -> None:
    """Measure the programs and print ratios."""
    with optrove.mock_board("n150"):
        import ttnn

        device = ttnn.open_device(device_id=0)
        for name, calls, run in workloads(ttnn, device):
            show(f"ttnn, {name}", calls, compare(run, WAYS, rounds, "ttnn"))
        ttnn.close_device(device)
    for name, make in PROGRAMS.items():
        show(f"torch, {name}", None, compare(make(), CAPSULE_WAYS, rounds, "torch"))


if __name__ == "__main__":
    sys.exit(main())
