"""Execute one Job in this process: open its device, call its case, judge and measure it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from optrove.errors import NotReplayable
from optrove.frameworks.executor import Asked, Stage
from optrove.frameworks.ttnn.board.devices import L1_SMALL
from optrove.model.records import Measurement, now
from optrove.replay.device_choice import device_parameters
from optrove.replay.judge import EXTRAS, RAN, WARM, judge
from optrove.serializer.hashes import placement_hash

if TYPE_CHECKING:
    from optrove.frameworks.executor import Executed, Executor, Telling
    from optrove.model.records import Attempt, DeviceParameters, Job
    from optrove.replay.messages import WorkerSetup

_REPEATS: Final = 3


class Execution:
    """Executes Jobs one after another with one executor."""

    def __init__(self, executor: Executor, setup: WorkerSetup) -> None:
        self._executor = executor
        self._setup = setup
        self._needing_l1_small: set[str] = set()

    def attempt(self, job: Job, case_id: str, tell: Telling) -> Attempt:
        """Return the Attempt at a Job; never raises for what a case can cause."""
        begun = replace(self._setup.not_run(job, case_id), started_at=now())
        try:
            executed, notes = self._execute(job, tell)
            judged = judge(begun, job, executed, notes)
        except NotReplayable as error:
            return replace(begun, detail=str(error))
        measured, unmeasured = self._extras(job, judged, tell)
        replayed = executed.replayed
        replayed_id: str | None = case_id
        if replayed != job.case:
            replayed_id = None if replayed is None else placement_hash(replayed)
        return replace(
            judged,
            measurements=(*judged.measurements, *measured),
            outputs=executed.outputs,
            replayed_case_id=replayed_id,
            duration_ns=executed.duration_ns,
            notes=(*judged.notes, *unmeasured),
        )

    def _execute(self, job: Job, tell: Telling) -> tuple[Executed, tuple[str, ...]]:
        """Execute a Job; again with small L1 if the op needs it and it was not recorded."""
        device = device_parameters(job)
        unrecorded = device.mesh_shape is not None and device.l1_small_size is None
        op = job.case.op
        if not (unrecorded and op in self._needing_l1_small):
            executed, notes = self._once(job, device, tell)
            raised = executed.raised
            if not unrecorded or raised is None or "l1_small" not in raised.text.lower():
                return executed, notes
        self._needing_l1_small.add(op)
        executed, notes = self._once(job, replace(device, l1_small_size=L1_SMALL), tell)
        note = (
            f"no l1_small_size was recorded, and {op} runs out of it without one; "
            f"the device was opened with {L1_SMALL}"
        )
        return executed, (*notes, note)

    def _once(
        self, job: Job, device: DeviceParameters, tell: Telling
    ) -> tuple[Executed, tuple[str, ...]]:
        notes: tuple[str, ...] = ()
        if device.mesh_shape is not None:
            tell(Stage.OPENING)
            notes = self._executor.open(device)
        return self._executor.execute(Asked(job.case, job.seed, job.outputs), tell), notes

    def _extras(
        self, job: Job, judged: Attempt, tell: Telling
    ) -> tuple[list[Measurement], list[str]]:
        """Return the measurements that repeat the call, and why some are missing."""
        measured: list[Measurement] = []
        unmeasured: list[str] = []
        for name in job.metrics if judged.outcome in RAN else ():
            if name not in EXTRAS:
                continue
            try:
                value = self._warm_ns(job, tell) if name == WARM else self._peak_l1(job)
                measured.append(Measurement(name, value))
            except NotReplayable as error:
                unmeasured.append(f"{name} was not measured: {error}")
        return measured, unmeasured

    def _peak_l1(self, job: Job) -> int:
        return self._executor.peak_l1(Asked(job.case, job.seed, job.outputs))

    def _warm_ns(self, job: Job, tell: Telling) -> int:
        """Return the time of the shortest of a few calls."""
        times = []
        for _ in range(_REPEATS):
            executed, _ = self._execute(job, tell)
            if executed.raised is not None or executed.duration_ns is None:
                words = "" if executed.raised is None else executed.raised.text.partition("\n")[0]
                raise NotReplayable(f"a repeated call said {words or 'nothing'}")
            times.append(executed.duration_ns)
        return min(times)
