"""Export cases and calls of a trove to a file, in a format of ``detect.FORMATS``."""

from __future__ import annotations

import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from optrove.errors import NotFound, UnusableResults
from optrove.interop.detect import FORMATS
from optrove.model.ops import op_pattern
from optrove.model.records import Query
from optrove.serializer.described import case_of
from optrove.trove.query import counts_for, full_name, model_named, run_named
from optrove.trove.scrubbing import scrubbed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

    from optrove.interop.detect import Format
    from optrove.interop.machines import Exported
    from optrove.model.case import Case
    from optrove.model.records import Call, Run
    from optrove.model.trove import ExecutionRow
    from optrove.trove.reader import TroveReader

STDOUT: Final = "-"
_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of a trove to export; None does not restrict it."""

    op: str | None = None
    model: str | None = None
    run: str | None = None
    board: str | None = None


def export_to(
    reader: TroveReader, file: str, form: str, selection: Selection, *, scrub: bool = False
) -> Exported:
    """Write the selection; NotFound when it is empty, and no file is touched.

    With ``scrub`` it is written without paths, host names and user names.
    """
    query = _query(reader, selection)
    if not reader.count(query):
        raise NotFound("the trove holds nothing to export for these options; choose less narrowly")
    chosen = next(each for each in FORMATS if each.name == form)
    if not scrub:
        return _export(reader, file, chosen, query)
    with scrubbed(reader) as clean:
        # The scrubbed trove may have other names for the selection.
        return _export(clean.reader, file, chosen, clean.query(query))


def _export(reader: TroveReader, file: str, form: Format, query: Query) -> Exported:
    items: Iterator[Any] = _calls(reader, query) if form.of_calls else _cases(reader, query)
    first = next(items, None)
    if first is None:
        raise NotFound(
            "the imported files have no calls one by one, only how often each case was called; "
            "write --format master or text"
        )
    items = chain((first,), items)
    if form.is_directory:
        return form.write(Path(file), items)
    with _target(file) as stream:
        return form.write(stream, items)


def _query(reader: TroveReader, selection: Selection) -> Query:
    return Query(
        op=None if selection.op is None else full_name(reader, selection.op),
        model=None if selection.model is None else model_named(reader, selection.model),
        run_id=None if selection.run is None else run_named(reader, selection.run),
        board=selection.board,
        outermost_only=False,
        hidden_ops=True,
    )


def _cases(reader: TroveReader, query: Query) -> Iterator[tuple[Case, tuple[ExecutionRow, ...]]]:
    """Yield the cases of a query with their executions that the query counts."""
    rows = reader.cases(query)
    while batch := tuple(islice(rows, _BATCH)):
        ids = [row.case_id for row in batch]
        executions = {
            case_id: tuple(row for row in each if counts_for(row, query))
            for case_id, each in groupby(
                reader.executions(ids, by_run=True), lambda row: row.case_id
            )
        }
        for row in batch:
            yield case_of(row.content), executions.get(row.case_id, ())


def _calls(reader: TroveReader, query: Query) -> Iterator[tuple[Call, Case]]:
    """Yield the calls of all runs of a query, in their order, each with its case."""
    wanted = None if query.op is None else op_pattern(query.op)
    for row in reader.runs(query.run_id):
        if _matches(row.run, query):
            cases = _CasesById(reader)
            for call in reader.calls(row.run.id):
                case = cases[call.case_id]
                if wanted is None or wanted.fullmatch(case.op):
                    yield call, case


def _matches(run: Run, query: Query) -> bool:
    model, board = run.model or run.source, run.environment.board or ""
    return query.model in (None, model) and (
        query.board is None or query.board.lower() == board.lower()
    )


class _CasesById(dict[str, "Case"]):
    """The cases of a run, each read on its first use."""

    def __init__(self, reader: TroveReader) -> None:
        super().__init__()
        self._reader = reader

    def __missing__(self, case_id: str) -> Case:
        query = Query(case_id=case_id, outermost_only=False, hidden_ops=True)
        (row,) = self._reader.cases(query)
        case = self[case_id] = case_of(row.content)
        return case


@contextmanager
def _target(file: str) -> Iterator[BinaryIO]:
    """Open the file to write; it gets its name only when everything is written."""
    if file == STDOUT:
        yield sys.stdout.buffer
        return
    path = Path(file)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as stream:
            written = Path(stream.name)
            try:
                yield stream.file  # type: ignore[misc]  # IO[bytes] in the stubs, a BinaryIO in truth
            except BaseException:
                written.unlink()
                raise
        written.chmod(0o644)
        written.replace(path)
    except OSError as error:
        raise UnusableResults(f"{file} cannot be written: {error}; choose another file") from error
