"""Audit golden checks: perturb the results of cases and see whether the check fails.

A check that passes whatever comes out is worse than none. Each result of a case is perturbed in
several ways, and the check must fail each time; and for other inputs it must expect other numbers.
On a device that runs kernels, the check must pass for the result of the kernel.
The audit runs in worker processes, whose Attempts have these outcomes:

    PASSED      every check of the case passes, and fails when it should
    WRONG_SPEC  the golden function and the kernel differ, and ``detail`` states how
    NUMERICS    a check cannot fail, and ``detail`` states how
    NOT_RUN     there is no check, or the case did not run, and ``detail`` states why

The measurements are the PCC of each perturbed result, and of the result of the kernel.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NotFound, NotReplayable
from optrove.frameworks.ttnn.ops import op_of
from optrove.model.causes import without_numbers
from optrove.model.records import RUNS_KERNELS, UNCHECKED, Measurement, Outcome, Query
from optrove.model.values import TensorSpec, walk
from optrove.replay.execute import JobExecutor
from optrove.replay.judge import headline, measure
from optrove.replay.planning import planned_cases
from optrove.replay.runner import run_jobs
from optrove.replay.worker import Worker, main
from optrove.report.attempts import UNSAID, measurement_data
from optrove.report.document import (
    Column,
    Item,
    Items,
    Paragraph,
    Section,
    count_cell,
    table,
)
from optrove.report.wording import SHORT_ID, plural
from optrove.trove.query import ops_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from optrove.frameworks.executor import Compared, Executed, OnStage
    from optrove.model.case import Case
    from optrove.model.records import Attempt, AttemptedCase, Job
    from optrove.replay.planning import PlannedJob
    from optrove.replay.runner import Workers
    from optrove.report.document import Node, Row
    from optrove.serializer.text import Json
    from optrove.trove.reader import TroveReader


COMMAND: Final = (sys.executable, "-m", "optrove.replay.audit")
"""The command of a worker that audits."""

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
            return replace(begun, detail=f"{UNCHECKED}it raised: {headline(executed.raised)}")
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
        why = "\n".join(lacking) or "it has no numbers to check"
        return replace(begun, detail=f"{UNCHECKED}{why}")
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
    if not tensors or op_of(case.op).is_constant:
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

    Without names they are those of all ops of ttnn. NotFound if the trove has no such case.
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


def run_audits(jobs: Iterable[Job], *, workers: Workers, **options: Any) -> Iterator[Attempt]:
    """Yield the audit of each Job, as ``run_jobs`` yields Attempts."""
    return run_jobs(jobs, workers=replace(workers, command=COMMAND), **options)


_SOUND: Final = "sound"
_WRONG: Final = "wrong"
_CANNOT_FAIL: Final = "cannot_fail"
_UNCHECKED: Final = "unchecked"
_AUDITED: Final = {
    Outcome.PASSED: _SOUND,
    Outcome.WRONG_SPEC: _WRONG,
    Outcome.NUMERICS: _CANNOT_FAIL,
}
_COLUMNS: Final = (
    Column("op"),
    *(Column(name, right=True) for name in ("cases", "sound", "wrong", "cannot fail", "unchecked")),
)


def audit_counts(attempts: Sequence[AttemptedCase]) -> dict[str, int]:
    """Return the number of cases with sound checks, wrong ones, ones that cannot fail, and none."""
    counted = Counter(map(_verdict_on, attempts))
    return {name: counted[name] for name in (*_AUDITED.values(), _UNCHECKED)}


def _verdict_on(attempted: AttemptedCase) -> str:
    return _AUDITED.get(attempted.attempt.outcome, _UNCHECKED)


def audit_document(
    attempts: Sequence[AttemptedCase], replaced: Mapping[str, str]
) -> Iterator[Node]:
    """Yield an audit of golden checks by op, and the reasons of those that are not sound.

    ``replaced`` has the reasons why some ops are not checked with the golden function of ttnn.
    """
    rows: list[Row] = []
    for op in sorted({each.op for each in attempts}):
        own = audit_counts([each for each in attempts if each.op == op])
        rows.append((op, sum(own.values()), *map(count_cell, own.values())))
    yield table(_COLUMNS, rows)
    counts = audit_counts(attempts)
    parts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
    yield Paragraph(f"{plural(len(attempts), 'case')}: {parts}")
    scaled = sum(bool(each.scaled_from) for each in attempts)
    if scaled:
        yield Paragraph(f"{scaled:,} of them scaled down; the ids are those of recorded cases")
    yield from _audit_reasons("golden functions that differ from the kernel", _WRONG, attempts)
    yield from _audit_reasons("checks that cannot fail", _CANNOT_FAIL, attempts)
    yield from _audit_reasons("without a check", _UNCHECKED, attempts)
    cases = Counter(each.op for each in attempts if each.op in replaced)
    items = tuple(Item(count, f"{op}: {replaced[op]}") for op, count in sorted(cases.items()))
    if items:
        yield Section("computed by optrove instead of ttnn's golden function", (Items(items),))


def _audit_reasons(title: str, wanted: str, attempts: Sequence[AttemptedCase]) -> Iterator[Section]:
    groups: dict[tuple[str, str], list[AttemptedCase]] = {}
    for each in attempts:
        if _verdict_on(each) == wanted:
            groups.setdefault((each.op, without_numbers(_reason(each))), []).append(each)
    items = tuple(
        Item(
            len(group),
            f"{op} (such as {_recorded_id(group[0])[:SHORT_ID]}): {_reason(group[0])}",
        )
        for (op, _), group in sorted(groups.items())
    )
    if items:
        yield Section(title, (Items(items),))


def _recorded_id(attempted: AttemptedCase) -> str:
    return next(iter(attempted.scaled_from), attempted.attempt.case_id)


def _reason(attempted: AttemptedCase) -> str:
    return (attempted.attempt.detail or UNSAID).splitlines()[0].removeprefix(UNCHECKED)


def audit_data(attempts: Sequence[AttemptedCase], replaced: Mapping[str, str]) -> dict[str, Json]:
    """Return an audit; ``docs/command-line.md`` describes the keys."""
    return {
        "planned": len(attempts),
        "counts": audit_counts(attempts),
        "replaced_goldens": {
            op: replaced[op] for op in sorted({each.op for each in attempts} & replaced.keys())
        },
        "cases": [
            {
                "op": each.op,
                "case_id": each.attempt.case_id,
                "verdict": _verdict_on(each),
                "detail": each.attempt.detail,
                "perturbed": [measurement_data(one) for one in each.attempt.measurements],
                "scaled_from": list(each.scaled_from),
            }
            for each in attempts
        ],
    }


if __name__ == "__main__":
    sys.exit(main(AuditWorker))
