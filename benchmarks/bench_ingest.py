"""How fast a journal goes into a trove: SQLite and PostgreSQL, at ten thousand calls and more.

Each journal is added by a separate process, so that its memory can be measured. The time is that of
reading, describing, packing and storing, without interpreter start and imports. ``own`` is the
processor time of the process, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from journals import make_journal

from optrove.journal.reader import JournalReader
from optrove.trove.place import place_of
from optrove.trove.trove import open_trove

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (10_000, 100_000, 1_000_000)
MOST_CASES = 10_000
SUPPORT = Path(__file__).parents[1] / "tests" / "support"


def read(lines: Path) -> None:
    """Read and describe all of a journal, and store nothing."""
    journal = JournalReader(lines)
    for part in (journal.tallies, journal.case_ids(), journal.scopes(), journal.endings()):
        for _ in part:
            continue
    assert journal.complete
    assert journal.digest
    journal.dictionary()


def store(lines: Path, place: str) -> None:
    """Take a journal in."""
    with open_trove(place_of(place), create=True) as trove:
        added = trove.add_journal(JournalReader(lines))
    assert added.recordings == 1


def measure(lines: Path, place: str | None) -> dict[str, float]:
    """Take a journal in, and return how long it took and what memory it needed."""
    start, busy = time.perf_counter(), time.process_time()
    if place is None:
        read(lines)
    else:
        store(lines, place)
    taken, worked = time.perf_counter() - start, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": taken, "own": worked, "peak_mb": peak / 1e3}


def quickest(lines: Path, new_place: Callable[[], str] | None, rounds: int) -> dict[str, float]:
    """Measure in new processes, each with a place of its own, and return the quickest."""
    found = []
    for _ in range(rounds):
        command = [sys.executable, __file__, "--lines", str(lines)]
        if new_place is not None:
            command += ["--place", new_place()]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - this file itself
        found.append(json.loads(done.stdout))
    return min(found, key=lambda each: each["seconds"])


def compare(directory: Path, sizes: list[int], rounds: int) -> None:
    """Make a journal of each size, and print what it takes to read it and to take it in."""
    # The server that the tests start; without fsync, as the machine's disk is not the point.
    sys.path.insert(0, str(SUPPORT))
    import postgres

    numbers = itertools.count()
    ways: dict[str, Callable[[], str] | None] = {
        "read only": None,
        "SQLite": lambda: str(directory / f"trove-{next(numbers)}.db"),
    }
    server = None if postgres.installed() is None else postgres.Server()
    try:
        if server is not None:
            ways["PostgreSQL"] = server.new_schema
        print(
            f"{'calls':>9} {'cases':>7}  {'way':11} {'seconds':>8} {'own':>6} "
            f"{'calls/s':>10} {'peak MB':>8}"
        )
        for calls in sizes:
            cases = min(MOST_CASES, calls // 10)
            lines = make_journal(directory / str(calls), calls, cases)
            for way, new_place in ways.items():
                best = quickest(lines, new_place, rounds)
                rate = calls / best["seconds"]
                print(
                    f"{calls:9} {cases:7}  {way:11} {best['seconds']:8.2f} "
                    f"{best['own']:6.2f} {rate:10,.0f} {best['peak_mb']:8.0f}",
                    flush=True,
                )
    finally:
        if server is not None:
            server.close()


def main() -> None:
    """Make journals, take them in, and print what that took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=Path, help="measure this journal, in this process")
    parser.add_argument("--place", help="where it goes; read only when left out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    asked = parser.parse_args()
    if asked.lines is not None:
        print(json.dumps(measure(asked.lines, asked.place)))
        return
    with tempfile.TemporaryDirectory() as name:
        compare(Path(name), asked.sizes, asked.rounds)


if __name__ == "__main__":
    main()
