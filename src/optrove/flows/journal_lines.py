"""Write the lines of ``--jsonl`` from journals, after the calls were made.

A journal keeps arguments by the names of their parameters, so all of them are in ``kwargs`` and
``inputs`` is empty. Calls that were filtered or could not be described have no line. A call that
was in flight when its process died has the error ``Unfinished``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from optrove.codec import journal as layout
from optrove.codec.identity import placement_hash
from optrove.codec.journal_reader import JournalReader
from optrove.codec.oplines import Fragments, OpError, OpLine, op_line
from optrove.errors import UnusableResults
from optrove.model.records import CallOutcome
from optrove.model.values import Null

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from optrove.codec.journal_reader import RawCall
    from optrove.model.case import Case
    from optrove.model.records import Call
    from optrove.model.values import Value

UNFINISHED: Final = OpError("Unfinished", "the process ended before the call did")


def write_journal_lines(journals: Iterable[Path], path: Path) -> int:
    """Append a line for each call of these journals to a file; return how many there are."""
    fragments = Fragments()
    count = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as stream:
            for journal in journals:
                for line in lines_of(JournalReader(journal)):
                    stream.write(op_line(line, fragments))
                    count += 1
    except OSError as error:
        raise UnusableResults(
            f"the lines of op calls cannot be written to {path}: {error}; choose another file"
        ) from error
    return count


def lines_of(reader: JournalReader) -> Iterator[OpLine]:
    """Yield the lines of one journal, in the order in which the calls began."""
    run_id = "unknown" if reader.run is None else reader.run.id
    # Only these have to be remembered, out of perhaps millions of calls.
    parents = {raw.parent for raw in reader.raw_calls() if raw.parent is not None}
    numbers: dict[int, int] = {}
    counts: Counter[str | None] = Counter()
    ids: dict[int, str] = {}
    for raw in reader.raw_calls():
        if raw.kind not in (layout.CASE, layout.OPAQUE):
            continue
        case = reader.case(raw.number)
        case_id = ids.get(raw.number)
        if case_id is None:
            case_id = ids[raw.number] = placement_hash(case)
        call = reader.call(raw, run_id, case_id)
        number = counts[call.test_id]
        counts[call.test_id] += 1
        if raw.op_index in parents:
            numbers[raw.op_index] = number
        parent = None if raw.parent is None else numbers.get(raw.parent)
        yield _line(call, case, number, parent, _result(raw, call))


def _line(
    call: Call, case: Case, number: int, parent: int | None, result: Value | OpError
) -> OpLine:
    error = result if isinstance(result, OpError) else None
    return OpLine(
        run_id=call.run_id,
        test_id=call.test_id,
        module=call.module,
        op_index=number,
        op=case.op,
        inputs=(),
        keywords=case.arguments,
        output=None if isinstance(result, OpError) else result,
        error=error,
        parent=parent,
        depth=call.depth,
        process=call.process,
        started_at=call.started_at,
        duration_ms=None if call.duration_ns is None else call.duration_ns / 1e6,
        case_id=call.case_id,
        phase=call.phase,
        mode=call.mode,
        call_site=call.call_site,
    )


def _result(raw: RawCall, call: Call) -> Value | OpError:
    if raw.outcome is CallOutcome.UNFINISHED:
        return UNFINISHED
    if raw.outcome is CallOutcome.RAISED:
        kind, _, message = (call.error or "Exception: ").partition(": ")
        return OpError(kind, message)
    return call.outputs[0] if call.outputs else Null()
