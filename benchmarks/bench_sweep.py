"""What a sweep costs: cases a second by one worker and by two, beside a bare loop, and its start.

The bare loop makes the tensors of the same cases and calls them, in one process, in the same order
of devices; it judges and keeps nothing. Times per case are those between the first case and the
last, so that starting processes and opening the first device, reported separately, do not count;
both get the machine in turn, and the best of a few rounds counts. Without ``--store`` the cases are
those of the encoder example, traced on a mock N300 just before.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from optrove.model.records import Sweep
from optrove.replay.runner import run_jobs
from optrove.sweep.planning import plan_sweep
from optrove.sweep.sweeping import begin, swept
from optrove.trove.place import place_of
from optrove.trove.query import CaseFilters
from optrove.trove.reader import open_reader

if TYPE_CHECKING:
    from optrove.sweep.vectors import SweepPlan

EXAMPLE = Path(__file__).parents[1] / "examples" / "encoder" / "test_encoder.py"
BARE = "--bare-loop"
LIMIT = 1.5


def main() -> None:
    """Measure, print, and end with 1 when a sweep takes more than its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", help="trove whose cases are swept")
    parser.add_argument("--board", default="n300")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(BARE, action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.bare_loop:
        print(json.dumps(bare_loop(asked.store, asked.board)))
        return
    with tempfile.TemporaryDirectory() as name:
        store = Path(name) / "trove.db"
        if asked.store is None:
            _optrove("trace", str(EXAMPLE), "--board", asked.board, "--store", str(store))
        else:
            shutil.copy(asked.store, store)
        sys.exit(compare(str(store), asked.board, asked.rounds))


def compare(store: str, board: str, rounds: int) -> int:
    """Print what both ways take, and return 1 when the sweep takes too long beside the loop."""
    plan = _plan(store, board)
    print(f"{len(plan.vectors)} cases on a mock {board}, best of {rounds} rounds")
    found: dict[str, list[tuple[float, float]]] = {"bare loop": [], "1 worker": [], "2 workers": []}
    for _ in range(rounds):
        found["bare loop"].append(_bare(store, board))
        for workers in (1, 2):
            found[f"{workers} worker{'s' * (workers > 1)}"].append(_sweep(store, plan, workers))
    best = {name: tuple(map(min, zip(*each, strict=True))) for name, each in found.items()}
    for name, (wall, cpu) in best.items():
        print(
            f"{name:10}: {wall * 1e3:6.2f} ms a case, {1 / wall:6.1f} cases/s, "
            f"{cpu * 1e3:6.2f} ms of processor time a case"
        )
    ratio = best["1 worker"][0] / best["bare loop"][0]
    print(f"a sweep with one worker takes {ratio:.2f} times the bare loop (at most {LIMIT})")
    _starts(store, board, plan)
    return int(ratio > LIMIT)


def _plan(store: str, board: str) -> SweepPlan:
    with open_reader(place_of(store)) as reader:
        return plan_sweep(Sweep(board=board), CaseFilters(), lambda: reader, store)


def _sweep(store: str, plan: SweepPlan, workers: int) -> tuple[float, float]:
    """Return the seconds per case that a sweep takes, as the clock and as processors tell."""
    place = place_of(store)
    begun = begin(place, Sweep(), plan)
    before = _processor_time()
    moments = [time.perf_counter() for _ in swept(begun, place, run_jobs, jobs=workers)]
    return (moments[-1] - moments[0]) / (len(moments) - 1), (_processor_time() - before) / len(
        moments
    )


def _processor_time() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


def _bare(store: str, board: str) -> tuple[float, float]:
    before = _processor_time()
    words = [sys.executable, __file__, BARE, "--store", store, "--board", board]
    done = subprocess.run(words, check=True, capture_output=True, text=True)  # noqa: S603 - this file
    answer = json.loads(done.stdout.splitlines()[-1])
    return answer["seconds"], (_processor_time() - before) / answer["cases"]


def bare_loop(store: str, board: str) -> dict[str, float]:
    """Make and call every case in this process, and return how long each took."""
    from importlib import import_module

    import optrove
    from optrove.errors import NotReplayable
    from optrove.frameworks.installed import LoadedTables
    from optrove.frameworks.ttnn.execute.execution import TtnnExecutor
    from optrove.model.records import DeviceKind
    from optrove.replay.device_choice import device_parameters

    plan = _plan(store, board)
    jobs = [each.job for each in plan.vectors]
    jobs.sort(key=lambda job: str(device_parameters(job)))
    moments = []
    with optrove.mock_board(board):
        executor = TtnnExecutor(import_module("ttnn"), LoadedTables(), DeviceKind.MOCK)
        for job in jobs:
            try:
                if device_parameters(job).mesh_shape is not None:
                    executor.open(device_parameters(job))
                executor.execute(job.case, seed=0, on_stage=lambda _: None)
            except NotReplayable as error:
                print(error, file=sys.stderr)
            moments.append(time.perf_counter())
        executor.close()
    return {"cases": len(jobs), "seconds": (moments[-1] - moments[0]) / (len(moments) - 1)}


def _starts(store: str, board: str, plan: SweepPlan) -> None:
    """Print what a sweep costs that executes nothing, and one that executes a single case."""
    case = plan.vectors[0]
    nothing = _seconds("sweep", "no.such.op", "--store", store)
    dry = _seconds("sweep", "--dry-run", "--board", board, "--store", store)
    one = _seconds("sweep", case.case_id[:16], "--board", board, "--store", store)
    print(f"fixed: {nothing:.1f} s if nothing is selected, {dry:.1f} s to plan all, ", end="")
    print(f"{one:.1f} s for a single case with its process and device")


def _seconds(*words: str) -> float:
    began = time.perf_counter()
    _optrove(*words, check=False)
    return time.perf_counter() - began


def _optrove(*words: str, check: bool = True) -> None:
    command = [sys.executable, "-m", "optrove", *words]
    subprocess.run(command, check=check, capture_output=True)  # noqa: S603 - our own command


if __name__ == "__main__":
    main()
