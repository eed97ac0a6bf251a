"""A trove with runs in which cases were executed, made by hand; needs no framework."""

from __future__ import annotations

from dataclasses import replace

from optrove.model.records import (
    Attempt,
    DeviceKind,
    Environment,
    Measurement,
    Outcome,
    Run,
    RunKind,
    Sweep,
    SweepModule,
)
from optrove.model.trove import PlannedCase
from optrove.serializer.described import describe_case
from optrove.trove.place import place_of
from optrove.trove.trove import open_trove
from small_trove import imported, make_trove, run_of
from trove_rows import case, memory, shard, tensor

OLD, NEW, SWEEP, TRACE = "a1" * 16, "b2" * 16, "c3" * 16, "d4" * 16

MOMENT = "2026-02-03T04:05:07.000000Z"
HOSTILE = "ttnn.<script>document.title='owned'</script>\"'`${1}"
SHARDED = case(
    "ttnn.matmul",
    input_tensor_a=tensor(
        1, 1, 64, 64, where=memory("L1_WIDTH_SHARDED", shard((64, 8), (7, 0))), number=1
    ),
)
ADDS = tuple(case("ttnn.add", input_tensor_a=tensor(32, 32), input_tensor_b=n) for n in range(6))
ODD = case(HOSTILE, text="</pre><img src=x onerror=alert(1)>")
CASES = (*ADDS, SHARDED, ODD)
WORDS = "TT_FATAL: no bank 8\ninfo:\nshard core (8, 0) has no bank <b>here</b>\x00\x1b[0m"


def id_of(one):
    return describe_case(one).case_id


def run(run_id, kind=RunKind.REPLAY, **facts):
    environment = Environment(
        "0.1",
        "3.12",
        "linux",
        ("optrove", "sweep", "it's"),
        host="lab-7",
        ttnn_version="0.81.1",
        device_kind=DeviceKind.SHADOW,
        board="n150",
    )
    usual = {
        "source": "check-board n150",
        "environment": environment,
        "started_at": "2026-02-03T04:05:06.000000Z",
    }
    return Run(id=run_id, kind=kind, **{**usual, **facts})


def attempt(one, run_id, outcome=Outcome.PASSED, detail=None, *, pcc=None, **facts):
    """Return the attempt at a case in a run."""
    measured = ()
    if pcc is not None:
        measured = (Measurement("pcc", pcc, 0.99, passed=pcc >= 0.99, output=0),)
    return Attempt(
        run_id=run_id,
        case_id=id_of(one),
        outcome=outcome,
        device_kind=DeviceKind.SHADOW,
        board="n150",
        detail=detail,
        measurements=measured,
        replayed_case_id=None if outcome is Outcome.NOT_RUN else id_of(one),
        started_at=facts.get("at", MOMENT),
        duration_ns=round(facts.get("ms", 2.0) * 1e6),
    )


def old_attempts():
    """All is well, but for one rejection."""
    return [
        *(attempt(one, OLD, pcc=0.9999) for one in ADDS),
        attempt(SHARDED, OLD),
        attempt(ODD, OLD, Outcome.REJECTED, WORDS),
    ]


def new_attempts():
    """One broken, one less exact, one slower, one fixed, one not run, the rest the same."""
    return [
        attempt(ADDS[0], NEW, pcc=0.9999),
        attempt(ADDS[1], NEW, pcc=0.995),
        attempt(ADDS[2], NEW, Outcome.NUMERICS, "output 0: PCC 0.5 is below 0.99", pcc=0.5),
        attempt(ADDS[3], NEW, Outcome.NOT_RUN, "no chips detected"),
        attempt(ADDS[4], NEW, pcc=0.9999, ms=400),
        attempt(ADDS[5], NEW, pcc=float("nan")),
        attempt(SHARDED, NEW, Outcome.REJECTED, WORDS),
        attempt(ODD, NEW),
    ]


def vector(suite, number):
    return case(f"sweep.eltwise.tanh.{suite}", input_shape=[32, number])


VECTORS = {
    "nightly": tuple(vector("nightly", number) for number in range(3)),
    "xfail_big": tuple(vector("xfail_big", number) for number in range(2)),
}


def add_sweep(trove):
    """A sweep of five vectors: one passed, one raised, one of xfail_big each, one not attempted."""
    every = [(one, suite) for suite, vectors in VECTORS.items() for one in vectors]
    plan = [PlannedCase(id_of(one), DeviceKind.SHADOW, "n150", suite) for one, suite in every]
    module = SweepModule("eltwise.tanh", "sweeps/eltwise/tanh.py", "0" * 64)
    begun = run(SWEEP, RunKind.SWEEP, source="sweep eltwise.tanh")
    begun = replace(begun, started_at="2026-02-05T04:05:06.000000Z")
    asked = Sweep(modules=(module,), left_out=(("invalid: odd width", 4),))
    trove.add_sweep(begun, asked, plan, {id_of(one): one for one, _ in every})
    first, second, _ = VECTORS["nightly"]
    big, bigger = VECTORS["xfail_big"]
    trove.add_attempts(
        begun,
        [
            attempt(first, SWEEP, pcc=0.999),
            attempt(second, SWEEP, Outcome.RAISED, "ValueError: no"),
            attempt(big, SWEEP, Outcome.OUT_OF_MEMORY, "out of memory"),
            attempt(bigger, SWEEP),
        ],
    )


def make_executed(path):
    """Make a trove with two replays of the same cases, and a sweep that was not finished."""
    recorded = imported(
        run_of(TRACE, "demo.py", model="demo", board="n150"),
        [(one, 10 + place) for place, one in enumerate(CASES)],
    )
    make_trove(path, recorded)
    with open_trove(place_of(str(path)), create=False) as trove:
        trove.add_attempts(run(OLD), old_attempts())
        later = run(NEW, started_at="2026-02-04T04:05:06.000000Z")
        trove.add_attempts(later, new_attempts())
        add_sweep(trove)
    return path
