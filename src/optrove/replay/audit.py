"""Audit golden checks: perturb the results of cases and see whether the check fails.

A check that passes whatever comes out is worse than none. Each result of a case is perturbed in
several ways, and the check must fail each time; and for other inputs it must expect other numbers.
On a device that runs kernels, the check must pass for the result of the kernel.
The audit runs in worker processes, whose Attempts then mean this:

    PASSED      every check of the case passes, and fails when it should
    WRONG_SPEC  the golden function and the kernel differ, and ``detail`` says how
    NUMERICS    a check cannot fail, and ``detail`` says how
    NOT_RUN     there is no check, or the case did not run, and ``detail`` says why

The measurements are the PCC of each perturbed result, and of the result of the kernel.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NotFound, NotReplayable
from optrove.model.records import RUNS_KERNELS, Measurement, Outcome, Query
from optrove.model.values import TensorSpec, walk
from optrove.replay.execute import JobExecutor
from optrove.replay.judge import headline, measure
from optrove.replay.planning import planned_cases
from optrove.replay.replay import default_workers
from optrove.replay.runner import Workers
from optrove.replay.worker import Worker, main
from optrove.trove.query import ops_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from optrove.frameworks.executor import Compared, Executed, OnStage
    from optrove.model.case import Case
    from optrove.model.records import Attempt, Job
    from optrove.replay.planning import PlannedJob
    from optrove.trove.reader import TroveReader


COMMAND: Final = (sys.executable, "-m", "optrove.replay.audit")
"""The command of a worker that audits."""

CONSTANT: Final = frozenset(
    {"ttnn.empty_like", "ttnn.full_like", "ttnn.ones_like", "ttnn.zeros_like"}
)
"""Operations whose results do not depend on the numbers of their inputs."""

SCALED: Final = "doubled"
"""The one perturbation that PCC cannot detect; it is measured, but not a fault."""

KERNEL: Final = "kernel"
"""The name of the measurement of a result as the kernel computed it."""


def _spoiled(result: Any) -> Any:
    """Return the result with every tenth number far off."""
    spoiled = result.flatten().clone()
    spoiled[::10] = result.abs().max() * 10 + 1
    return spoiled.reshape(result.shape)


PERTURBATIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "zeroed": lambda result: result * 0,
    "negated": lambda result: -result,
    "reversed": lambda result: result.flatten().flip(0).reshape(result.shape),
    "spoiled": _spoiled,
    SCALED: lambda result: result * 2,
}
"""The perturbations of a result, which is a torch tensor in double precision."""


class Audit(JobExecutor):
    """Audits the checks of cases, one after another."""

    def attempt(self, job: Job, case_id: str, on_stage: OnStage) -> Attempt:
        """Return the audit of a Job."""
        begun = self._setup.not_run(job, case_id)
        try:
            executed, _ = self._execute(job, on_stage)
            other, _ = self._execute(replace(job, seed=job.seed + 1), on_stage)
        except NotReplayable as error:
            return replace(begun, detail=str(error))
        if executed.raised is not None:
            return replace(begun, detail=f"it raised: {headline(executed.raised)}")
        return audited(begun, job.case, executed, other)


def audited(begun: Attempt, case: Case, executed: Executed, other: Executed) -> Attempt:
    """Return the audit of a case that was executed with two seeds."""
    checks = [each for each in executed.compared if each.lacking is None]
    lacking = [
        f"output {each.output} has no check: {each.lacking}"
        for each in executed.compared
        if each.lacking is not None
    ]
    if not checks:
        return replace(begun, detail="\n".join(lacking) or "it has no numbers to check")
    wrong: list[str] = []
    faults: list[str] = []
    measured: list[Measurement] = []
    if begun.device_kind in RUNS_KERNELS:
        computed, wrong, _ = measure(tuple(checks), ("pcc",))
        measured += [replace(each, name=KERNEL) for each in computed]
    for check in checks:
        for name in PERTURBATIONS:
            found, fault = _perturbed(check, name)
            measured += found
            faults += fault
    faults += _blind(case, executed, other)
    blind = Outcome.NUMERICS if faults else Outcome.PASSED
    return replace(
        begun,
        outcome=Outcome.WRONG_SPEC if wrong else blind,
        detail="\n".join((*wrong, *faults, *lacking)) or None,
        measurements=tuple(measured),
    )


def _perturbed(check: Compared, name: str) -> tuple[list[Measurement], list[str]]:
    """Return the measurements of a perturbed result, and a fault if its check passes."""
    actual = check.actual.double()
    if not actual.numel():
        return [], []
    wrong = PERTURBATIONS[name](actual)
    if wrong.equal(actual):
        # Such as a constant in reverse.
        return [], []
    measured, failing, _ = measure((replace(check, actual=wrong),), ("pcc",))
    found = [
        Measurement(name, each.value, each.threshold, not each.passed, each.output)
        for each in measured
    ]
    if failing or name == SCALED:
        return found, []
    return found, [f"output {check.output}: the check passes when it is {name}"]


def _blind(case: Case, executed: Executed, other: Executed) -> list[str]:
    """Return the checks that expect the same numbers for other inputs."""
    tensors = any(
        isinstance(part, TensorSpec) for _, value in case.arguments for _, part in walk(value)
    )
    if not tensors or case.op in CONSTANT:
        return []
    pairs = zip(executed.compared, other.compared, strict=False)
    return [
        f"output {one.output}: the same is expected for other inputs"
        for one, another in pairs
        if one.lacking is None
        and another.lacking is None
        # A single number, such as a truth value, may well be the same.
        and one.expected.numel() > 1
        and one.expected.shape == another.expected.shape
        and bool(one.expected.equal(another.expected))
    ]


class AuditWorker(Worker):
    """A worker whose executions are audits."""

    execution = Audit


def cases_to_audit(
    reader: TroveReader,
    names: Iterable[str],
    *,
    most: int,
    seed: int = 0,
    timeout_ns: int | None = None,
) -> list[PlannedJob]:
    """Return the most called cases of each op, at most so many.

    Without names they are those of all ops of ttnn. NotFound if there are none.
    """
    given = tuple(names)
    found = {op for name in given for op in ops_named(reader, name)} or set(reader.op_names())
    query = Query(outermost_only=False, data_movement=bool(given), limit=most)
    cases = [
        planned
        for op in sorted(found)
        if op.startswith("ttnn.")
        for planned in planned_cases(
            reader, replace(query, op=op), seed=seed, timeout_ns=timeout_ns
        )
    ]
    if not cases:
        raise NotFound("the trove has no case of a ttnn op; list its ops with: optrove ops")
    return cases


def audit_workers(jobs: int | None, cases: int) -> Workers:
    """Return the worker processes of an audit."""
    return Workers(jobs or default_workers(cases), COMMAND)


if __name__ == "__main__":
    sys.exit(main(AuditWorker))
