"""Audit golden checks: perturb outputs and see whether the check notices.

A check that passes whatever comes out is worse than none. Each result of a case is perturbed in
several ways, each of which must make the check fail; and with other inputs, other numbers must be
expected. It runs in worker processes, whose Attempts then mean this:

    PASSED      every check of the case fails when it should
    NUMERICS    a check cannot fail, and ``detail`` says how
    NOT_RUN     there is no check, or the case did not run, and ``detail`` says why

The measurements are the PCC that each perturbed result has against what is expected.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NotFound, NotReplayable
from optrove.model.records import Attempt, DeviceKind, Measurement, Outcome, Query
from optrove.model.values import TensorSpec, walk
from optrove.replay.device_choice import Choice, grouped
from optrove.replay.execute import Execution
from optrove.replay.judge import headline, measure
from optrove.replay.planning import planned_cases
from optrove.replay.replay import usual_workers
from optrove.replay.runner import Workers
from optrove.replay.worker import Worker, main
from optrove.trove.query import ops_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from optrove.frameworks.executor import Compared, Executed, Telling
    from optrove.model.case import Case
    from optrove.model.records import Job
    from optrove.replay.device_choice import Where
    from optrove.replay.planning import How, Planned
    from optrove.trove.reader import TroveReader


COMMAND: Final = (sys.executable, "-m", "optrove.replay.audit")
"""What starts a worker that audits."""

CONSTANT: Final = frozenset(
    {"ttnn.empty_like", "ttnn.full_like", "ttnn.ones_like", "ttnn.zeros_like"}
)
"""Operations that give the same whatever the numbers of their inputs, and should."""

SCALED: Final = "doubled"
"""The one perturbation that PCC does not see by its nature; it is measured, and no fault."""


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
"""What is done to a result, which is a tensor of torch in double precision."""


class Audit(Execution):
    """Audits the checks of cases, one after another."""

    def attempt(self, job: Job, case_id: str, tell: Telling) -> Attempt:
        """Return what came of auditing a Job."""
        begun = Attempt(
            run_id=self._run_id,
            case_id=case_id,
            outcome=Outcome.NOT_RUN,
            device_kind=job.device_kind,
            seed=job.seed,
            board=self._board,
        )
        try:
            executed, _ = self._execute(job, tell)
            other, _ = self._execute(replace(job, seed=job.seed + 1), tell)
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
        return replace(begun, detail="\n".join(lacking) or "it gives no numbers to check")
    faults: list[str] = []
    measured: list[Measurement] = []
    for check in checks:
        for name in PERTURBATIONS:
            found, fault = _perturbed(check, name)
            measured += found
            faults += fault
    faults += _blind(case, executed, other)
    return replace(
        begun,
        outcome=Outcome.NUMERICS if faults else Outcome.PASSED,
        detail="\n".join((*faults, *lacking)) or None,
        measurements=tuple(measured),
    )


def _perturbed(check: Compared, name: str) -> tuple[list[Measurement], list[str]]:
    """Return what is measured of a perturbed result, and whether its check fails to fail."""
    actual = check.actual.double()
    if not actual.numel():
        return [], []
    wrong = PERTURBATIONS[name](actual)
    if wrong.equal(actual):
        # Nothing is wrong with it, such as a constant in reverse.
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
    """Return which checks expect the same whatever the inputs are."""
    tensors = any(
        isinstance(part, TensorSpec) for _, value in case.arguments for _, part in walk(value)
    )
    if not tensors or case.op in CONSTANT:
        return []
    pairs = zip(executed.compared, other.compared, strict=False)
    return [
        f"output {one.output}: the same is expected for other inputs"
        for one, another in pairs
        if one.lacking is None and another.lacking is None and _equal(one, another)
    ]


def _equal(one: Compared, another: Compared) -> bool:
    same = one.expected.shape == another.expected.shape
    # One that is empty, or a truth value, may well be the same.
    telling = one.expected.numel() > 1
    return bool(same and telling and one.expected.equal(another.expected))


class AuditWorker(Worker):
    """A worker whose executions are audits."""

    execution = Audit


if __name__ == "__main__":
    sys.exit(main(AuditWorker))


_OURS = "ttnn."


def cases_to_audit(
    reader: TroveReader, names: Iterable[str], each: int, how: How
) -> tuple[Planned, ...]:
    """Return the most called cases of each op, ``each`` of them at most; of all without a name."""
    given = tuple(names)
    meant = {op for name in given for op in ops_named(reader, name)} or set(reader.op_names())
    ops = sorted(op for op in meant if op.startswith(_OURS))
    query = Query(outermost_only=False, hidden_ops=bool(given), limit=each)
    found = tuple(
        planned for op in ops for planned in planned_cases(reader, replace(query, op=op), how)
    )
    if not found:
        raise NotFound("the trove holds no case of an op of ttnn; list its ops: optrove ops")
    return found


def grounds_of(cases: Iterable[Planned], board: str | None) -> dict[Where, list[Planned]]:
    """Return the cases by the mock boards with numbers on which they are audited."""
    return grouped(cases, Choice(DeviceKind.SHADOW, board))


def auditors(jobs: int | None, cases: int) -> Workers:
    """Return the worker processes that audit."""
    return Workers(jobs or usual_workers(cases), COMMAND)
