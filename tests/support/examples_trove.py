"""A trove that an example model has made: traced, replayed, and replayed once more, not so well."""

from __future__ import annotations

from dataclasses import replace

from example_runs import run, traced
from optrove.model.records import DeviceKind, Outcome, RunKind, Sweep
from optrove.model.trove import PlannedCase
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.sessions import new_session
from optrove.trove.trove import open_trove

LATER, SWEEP = "1a7e4" + "0" * 27, "5eeb" + "0" * 28
REASON = "TT_FATAL: not on this release"
MODEL = "encoder"


def make_examples_trove(directory):
    """Trace the encoder on a mock n300 with numbers, replay what is sharded, return the path."""
    path = directory / "trove.db"
    shadow = ("--board", "n300", "--shadow", "--model", MODEL)
    traced(directory, "encoder", *shadow, "--", "-k", "sharded")
    chosen = ("--memory", "SHARDED", "--all", "--device", "shadow", "--store", path.name)
    done = run(directory, "optrove", "replay", "*", *chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    _replay_later(place_of(str(path)))
    return path


def _replay_later(place):
    """Add a replay in which one case is refused and another takes long."""
    with open_reader(place) as reader:
        (first,) = (row.run for row in reader.runs() if row.run.kind is RunKind.REPLAY)
        attempts = [row.attempt for row in reader.attempted_cases(first.id)]
    began = first.started_at.replace("20", "21", 1)
    later = replace(first, id=LATER, started_at=began, finished_at=began)
    again = [replace(each, run_id=LATER, started_at=began) for each in attempts]
    again[-1] = replace(again[-1], outcome=Outcome.REJECTED, detail=REASON, measurements=())
    again[-2] = replace(again[-2], duration_ns=again[-2].duration_ns + 10**10)
    with open_trove(place, create=False) as trove:
        trove.add_attempts(later, again)


def sweep_on(place, tried):
    """Begin a sweep over what was replayed, or go on with it, until so many are tried."""
    with open_reader(place) as reader:
        (row,) = (row for row in reader.runs() if row.run.id == LATER)
        attempts = [each.attempt for each in reader.attempted_cases(LATER)]
    run = replace(row.run, id=SWEEP, kind=RunKind.SWEEP, finished_at=None)
    plan = [PlannedCase(each.case_id, DeviceKind.SHADOW, "n300") for each in attempts]
    passed = [
        replace(each, run_id=SWEEP, outcome=Outcome.PASSED, detail=None)
        for each in attempts[:tried]
    ]
    with open_trove(place, create=False) as trove:
        trove.add_sweep(run, Sweep(), plan)
        trove.add_attempts(run, passed, new_session())
    return len(plan)
