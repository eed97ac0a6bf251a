"""Jobs and Attempts as parent and worker exchange them: written with little work, read once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from optrove.codec.described import Descriptions
from optrove.codec.records import record_from_builtins, record_to_builtins
from optrove.codec.text import write
from optrove.model.case import Case
from optrove.model.records import Attempt, Job

if TYPE_CHECKING:
    from optrove.codec.text import Json

_NO_CASE: Final = Case("", ())


@dataclass(frozen=True, slots=True)
class Order:
    """A Job for a worker: its case's id, and the message that a worker understands."""

    job: Job
    case_id: str
    message: str


class Orders:
    """Makes Orders; arguments that repeat are written once."""

    def __init__(self) -> None:
        self._descriptions = Descriptions()

    def of(self, job: Job) -> Order:
        """Return the Order for a Job; BadData for a Case that no reader would accept."""
        described = self._descriptions.of(job.case)
        rest = record_to_builtins(replace(job, case=_NO_CASE, outputs=None))
        del rest["case"]
        # The texts of a case and of its outputs are at hand; to make data of them first would
        # take most of the parent's time.
        parts = [f'"case":{described.content}']
        if job.outputs is not None:
            parts.append(f'"outputs":[{",".join(map(self._descriptions.text, job.outputs))}]')
        parts.append(write(rest)[1:-1])
        message = f'{{"job":{{"case_id":"{described.case_id}","job":{{{",".join(parts)}}}}}}}'
        return Order(job, described.case_id, message)


def read_order(content: Json) -> tuple[Job, str]:
    """Return the Job of an Order and the id of its case, from the content of its message."""
    return record_from_builtins(content["job"], Job), content["case_id"]


def answer_of(attempt: Attempt, job: Job) -> Json:
    """Return an Attempt as it is sent back: outputs that are as recorded are not repeated."""
    as_recorded = attempt.outputs == job.outputs
    sent = replace(attempt, outputs=()) if as_recorded else attempt
    return {"as_recorded": as_recorded, "attempt": record_to_builtins(sent)}


def read_answer(content: Json, job: Job) -> Attempt:
    """Return the Attempt that a worker has sent back for a Job."""
    attempt = record_from_builtins(content["attempt"], Attempt)
    if content["as_recorded"] and job.outputs is not None:
        return replace(attempt, outputs=job.outputs)
    return attempt
