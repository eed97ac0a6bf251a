"""Execute one Job in this process: open its device, call its case, judge and measure it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from optrove.errors import DeviceNotOpened, NotReplayable
from optrove.frameworks.executor import Stage
from optrove.frameworks.ttnn.board.devices import L1_SMALL
from optrove.model.records import (
    E2E_NS,
    VALUES_OF,
    DeviceParameters,
    Measurement,
    Outcome,
    now,
)
from optrove.replay.device_choice import device_parameters
from optrove.replay.judge import EXTRAS, RAN, classify, judge
from optrove.serializer.hashes import placement_hash

if TYPE_CHECKING:
    from optrove.frameworks.executor import Executed, Executor, OnStage
    from optrove.model.records import Attempt, Job
    from optrove.replay.messages import WorkerSetup

_REPEATS: Final = 3


class JobExecutor:
    """Executes Jobs one after another with one executor."""

    def __init__(self, executor: Executor, setup: WorkerSetup) -> None:
        self._executor = executor
        self._setup = setup
        self._needing_l1_small: set[str] = set()
        self._is_used = False

    def attempt(self, job: Job, case_id: str, on_stage: OnStage) -> Attempt:
        """Return the Attempt at a Job; DeviceNotOpened if this process has no more use.

        If the Job has several capsules, the case is executed with one after another until one
        does not pass.
        """
        if not job.capsules:
            return self._attempt(job, case_id, on_stage)
        executed = 0
        for capsule in job.capsules:
            attempt = self._attempt(replace(job, capsules=(capsule,)), case_id, on_stage)
            executed += 1
            if attempt.outcome is not Outcome.PASSED:
                break
        note = f"{VALUES_OF}{capsule.op_index} of run {capsule.run_id[:12]}"
        if len(job.capsules) > 1:
            note += f"; {executed} of {len(job.capsules)} capsules were executed"
        return replace(attempt, notes=(*attempt.notes, note))

    def _attempt(self, job: Job, case_id: str, on_stage: OnStage) -> Attempt:
        begun = replace(self._setup.not_run(job, case_id), started_at=now())
        try:
            executed, notes = self._execute(job, on_stage)
            judged = judge(begun, job, executed, notes)
        except DeviceNotOpened:
            raise
        except NotReplayable as error:
            return replace(begun, detail=str(error))
        measured, unmeasured = self._extras(job, judged, on_stage)
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

    def _execute(self, job: Job, on_stage: OnStage) -> tuple[Executed, tuple[str, ...]]:
        """Execute a Job; again with small L1 if the op needs it and it was not recorded."""
        if job.flow is not None:
            device = job.device or DeviceParameters()
            if job.flow.place == 0:
                return self._once(job, device, on_stage)
            # The device has to stay as it is, with the tensors of earlier steps.
            return self._on_device(job, device, on_stage)
        device = device_parameters(job)
        unrecorded = device.mesh_shape is not None and device.l1_small_size is None
        op = job.case.op
        if not (unrecorded and op in self._needing_l1_small):
            executed, notes = self._once(job, device, on_stage)
            raised = executed.raised
            if not unrecorded or raised is None or "l1_small" not in raised.text.lower():
                return executed, notes
        self._needing_l1_small.add(op)
        executed, notes = self._once(job, replace(device, l1_small_size=L1_SMALL), on_stage)
        note = (
            f"no l1_small_size was recorded, and {op} runs out of it without one; "
            f"the device was opened with {L1_SMALL}"
        )
        return executed, (*notes, note)

    def _once(
        self, job: Job, device: DeviceParameters, on_stage: OnStage
    ) -> tuple[Executed, tuple[str, ...]]:
        """Execute a Job; if memory runs out, again without what earlier Jobs have left."""
        executed, notes = self._on_device(job, device, on_stage)
        was_used, self._is_used = self._is_used, True
        raised = executed.raised
        if not was_used or device.mesh_shape is None or raised is None:
            return executed, notes
        if classify(raised)[0] is not Outcome.OUT_OF_MEMORY:
            return executed, notes
        self._executor.reset()
        return self._on_device(job, device, on_stage)

    def _on_device(
        self, job: Job, device: DeviceParameters, on_stage: OnStage
    ) -> tuple[Executed, tuple[str, ...]]:
        notes: tuple[str, ...] = ()
        if device.mesh_shape is not None:
            on_stage(Stage.OPENING)
            notes = self._executor.open(device)
        return self._executor.execute(job, on_stage), notes

    def _extras(
        self, job: Job, judged: Attempt, on_stage: OnStage
    ) -> tuple[list[Measurement], list[str]]:
        """Return the measurements that repeat the call, and why some are missing."""
        measured: list[Measurement] = []
        unmeasured: list[str] = []
        for name in job.metrics if judged.outcome in RAN else ():
            if name not in EXTRAS:
                continue
            try:
                if name == E2E_NS:
                    measured += self._warm(job, on_stage)
                else:
                    measured.append(Measurement(name, self._executor.peak_l1(job)))
            except NotReplayable as error:
                unmeasured.append(f"{name} was not measured: {error}")
        return measured, unmeasured

    def _warm(self, job: Job, on_stage: OnStage) -> list[Measurement]:
        """Return the time of a warm call, and what the executor measures with it."""
        measured = self._executor.warm(job)
        if measured is None:
            return [Measurement(E2E_NS, self._warm_ns(job, on_stage))]
        return [Measurement(name, value) for name, value in measured.items()]

    def _warm_ns(self, job: Job, on_stage: OnStage) -> int:
        """Return the time of the shortest of a few calls."""
        times = []
        for _ in range(_REPEATS):
            executed, _ = self._execute(job, on_stage)
            if executed.raised is not None or executed.duration_ns is None:
                words = "" if executed.raised is None else executed.raised.text.partition("\n")[0]
                raise NotReplayable(f"a repeated call failed: {words or 'no message'}")
            times.append(executed.duration_ns)
        return min(times)
