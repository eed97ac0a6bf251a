"""Execute one Job in this process: open its device, call its case, judge what came of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from optrove.errors import NotReplayable
from optrove.frameworks.executor import Asked, Stage
from optrove.frameworks.ttnn.board.devices import L1_SMALL
from optrove.model.records import Attempt, Outcome
from optrove.replay import judge
from optrove.replay.jobs import device_of
from optrove.replay.judge import measure_extras
from optrove.serializer.hashes import placement_hash

if TYPE_CHECKING:
    from optrove.frameworks.executor import Executed, Executor, Telling
    from optrove.model.case import Case
    from optrove.model.records import DeviceParameters, Job


class Execution:
    """Executes Jobs one after another with one executor, and remembers what they needed."""

    def __init__(self, executor: Executor, run_id: str, board: str | None) -> None:
        self._executor = executor
        self._run_id = run_id
        self._board = board
        self._needing_l1_small: set[str] = set()

    def attempt(self, job: Job, case_id: str, tell: Telling) -> Attempt:
        """Return what came of a Job; never raises for what a case can bring about."""
        started_at = f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%S.%f}Z"
        begun = Attempt(
            run_id=self._run_id,
            case_id=case_id,
            outcome=Outcome.NOT_RUN,
            device_kind=job.device_kind,
            seed=job.seed,
            board=self._board,
            started_at=started_at,
        )
        try:
            executed, notes = self._execute(job, tell)
            verdict = judge.judge(job, executed, notes)
        except NotReplayable as error:
            return replace(begun, detail=str(error))
        extras, lacking = measure_extras(
            job, verdict.outcome, self._executor, lambda: self._execute(job, tell)[0]
        )
        replayed = executed.replayed
        replayed_id = case_id if replayed == job.case else _hash(replayed)
        return replace(
            begun,
            outcome=verdict.outcome,
            detail=verdict.detail,
            measurements=(*verdict.measurements, *extras),
            outputs=executed.outputs,
            replayed_case_id=replayed_id,
            duration_ns=executed.duration_ns,
            notes=(*verdict.notes, *lacking),
        )

    def _execute(self, job: Job, tell: Telling) -> tuple[Executed, tuple[str, ...]]:
        """Execute a Job; a second time with small L1 where that was not told and is missed."""
        wanted = device_of(job)
        untold = wanted.mesh_shape is not None and wanted.l1_small_size is None
        op = job.case.op
        if not (untold and op in self._needing_l1_small):
            executed, notes = self._once(job, wanted, tell)
            missed = executed.raised is not None and judge.L1_SMALL.search(executed.raised.text)
            if not untold or not missed:
                return executed, notes
        self._needing_l1_small.add(op)
        executed, notes = self._once(job, replace(wanted, l1_small_size=L1_SMALL), tell)
        note = (
            f"no l1_small_size was recorded, and {op} runs out of it without one; "
            f"the device was opened with {L1_SMALL}"
        )
        return executed, (*notes, note)

    def _once(
        self, job: Job, wanted: DeviceParameters, tell: Telling
    ) -> tuple[Executed, tuple[str, ...]]:
        notes: tuple[str, ...] = ()
        if wanted.mesh_shape is not None:
            tell(Stage.OPENING)
            notes = self._executor.open(wanted)
        asked = Asked(job.case, job.seed, job.outputs)
        return self._executor.execute(asked, tell), notes


def _hash(case: Case | None) -> str | None:
    return None if case is None else placement_hash(case)
