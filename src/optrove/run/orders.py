"""Jobs and Attempts as parent and worker exchange them: written with little work, read once.

Each argument and each output travels as the text of its canonical JSON. Most of them come again and
again, and so does all that a Job says besides its case: a text that was read is not read again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from optrove.codec.decode import decode
from optrove.codec.described import Descriptions, case_id_of
from optrove.codec.records import record_from_builtins, record_to_builtins
from optrove.codec.text import write
from optrove.codec.wire import encode
from optrove.model.case import Case
from optrove.model.records import Attempt, Job

if TYPE_CHECKING:
    from optrove.codec.text import Json
    from optrove.model.values import Value

_NO_CASE: Final = Case("", ())
_MOST_KNOWN: Final = 8192


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
        part = self._descriptions.part
        parts = [(name, part(value)) for name, value in job.case.arguments]
        case_id = case_id_of(job.case.op, parts)
        outputs = None if job.outputs is None else [part(value).content for value in job.outputs]
        content = {
            "case_id": case_id,
            "op": job.case.op,
            "arguments": [(name, each.content) for name, each in parts],
            "outputs": outputs,
            "rest": _text_of_rest(replace(job, case=_NO_CASE, outputs=None)),
        }
        return Order(job, case_id, write({"job": content}))


def read_order(content: Json) -> tuple[Job, str]:
    """Return the Job of an Order and the id of its case, from the content of its message."""
    arguments = tuple([(name, _value_of(text)) for name, text in content["arguments"]])
    outputs = content["outputs"]
    job = replace(
        _rest_of(content["rest"]),
        case=Case(content["op"], arguments),
        outputs=None if outputs is None else tuple([_value_of(text) for text in outputs]),
    )
    return job, content["case_id"]


def answer_of(attempt: Attempt, job: Job) -> Json:
    """Return an Attempt as it is sent back: outputs that are as recorded are not repeated."""
    as_recorded = attempt.outputs == job.outputs
    outputs = [] if as_recorded else [_text_of(value) for value in attempt.outputs]
    sent = record_to_builtins(replace(attempt, outputs=()))
    return {"as_recorded": as_recorded, "outputs": outputs, "attempt": sent}


def read_answer(content: Json, job: Job) -> Attempt:
    """Return the Attempt that a worker has sent back for a Job."""
    attempt = record_from_builtins(content["attempt"], Attempt)
    if content["as_recorded"] and job.outputs is not None:
        return replace(attempt, outputs=job.outputs)
    return replace(attempt, outputs=tuple([_value_of(text) for text in content["outputs"]]))


@lru_cache(_MOST_KNOWN)
def _text_of(value: Value) -> str:
    return write(encode(value))


@lru_cache(_MOST_KNOWN)
def _value_of(text: str) -> Value:
    return decode(json.loads(text))


@lru_cache(_MOST_KNOWN)
def _text_of_rest(job: Job) -> str:
    return write(record_to_builtins(job))


@lru_cache(_MOST_KNOWN)
def _rest_of(text: str) -> Job:
    return record_from_builtins(json.loads(text), Job)
