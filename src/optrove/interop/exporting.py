"""Export cases and calls of a trove to a file, in a format of ``formats.FORMATS``."""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from optrove.errors import BadTarget, NotFound, UnusableResults
from optrove.interop.formats import FORMATS, WRITTEN
from optrove.journal.families import exact_call
from optrove.model.ops import op_pattern
from optrove.model.records import Query, RunKind, matches_filter
from optrove.serializer.described import case_of
from optrove.trove.query import counts_for, full_name, query_of
from optrove.trove.scrubbing import scrubbed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, BinaryIO

    from optrove.interop.formats import Format
    from optrove.interop.machines import Exported
    from optrove.model.case import Case
    from optrove.model.records import Call, Run
    from optrove.model.trove import ExecutionRow
    from optrove.trove.query import CaseFilters
    from optrove.trove.reader import TroveReader

STDOUT: Final = "-"
_BATCH: Final = 500


def export_to(
    reader: TroveReader, file: str, form: str, asked: CaseFilters, *, scrub: bool = False
) -> Exported:
    """Write the cases that match; NotFound when no case does, and no file is touched.

    With ``scrub`` they are written without paths, host names and user names.
    """
    query = _query(reader, asked)
    if not reader.count(query):
        raise NotFound("the trove has no cases for these options; use fewer filters")
    chosen = next(each for each in FORMATS if each.name == form)
    if not scrub:
        return _export(reader, file, chosen, query)
    with scrubbed(reader) as clean:
        # The scrubbed trove may have other names for the same things.
        return _export(clean.reader, file, chosen, clean.query(query))


def format_of(file: str) -> str:
    """Return the name of the format that the suffix of a file means; BadTarget if it means none.

    What goes to stdout is a master file.
    """
    suffix = Path(file).suffix
    by_suffix = {each.suffix: each.name for each in FORMATS if each.is_written and each.suffix}
    if file == STDOUT:
        return by_suffix[".json"]
    if suffix not in by_suffix:
        meant = ", ".join(f"{suffix} is {name}" for suffix, name in by_suffix.items())
        raise BadTarget(
            f"the name {file!r} does not tell the format to write ({meant}); "
            f"add --format with one of: {', '.join(WRITTEN)}"
        )
    return by_suffix[suffix]


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


def _query(reader: TroveReader, asked: CaseFilters) -> Query:
    every = query_of(reader, replace(asked, nested=True, all_ops=True))
    op = None if asked.name is None else full_name(reader, asked.name)
    return replace(every, op=op, vectors=False)


def _cases(reader: TroveReader, query: Query) -> Iterator[tuple[Case, tuple[ExecutionRow, ...]]]:
    """Yield the cases of a query with their executions that the query counts."""
    rows = reader.cases(query)
    recorded = _Recorded(reader)
    while batch := tuple(islice(rows, _BATCH)):
        ids = [row.case_id for row in batch]
        executions = {
            case_id: tuple(row for row in each if counts_for(row, query))
            for case_id, each in groupby(
                reader.executions(ids, by_run=True), lambda row: row.case_id
            )
        }
        for row in batch:
            found = executions.get(row.case_id, ())
            yield case_of(row.content), tuple(each for one in found for each in recorded.of(one))


class _Recorded:
    """How Runs have recorded their cases.

    Imported ones have provenance, and configurations as the files have them. Traced ones have the
    id of the Run, which tt-metal requires as ``trace_uid``, and the arguments that were passed by
    place; the first call of a case counts.
    """

    def __init__(self, reader: TroveReader) -> None:
        self._reader = reader
        runs = [row.run for row in reader.runs()]
        self._provenance = {run.id: run.provenance for run in runs if run.kind is RunKind.IMPORT}
        self._configurations: dict[str, dict[str, list[tuple[int, str]]]] = {}
        self._by_place: dict[str, dict[str, tuple[str, ...]]] = {}

    def _places(self, run_id: str) -> dict[str, tuple[str, ...]]:
        if run_id not in self._by_place:
            known = self._by_place[run_id] = {}
            for case_id, names in self._reader.places(run_id):
                known.setdefault(case_id, names)
        return self._by_place[run_id]

    def of(self, row: ExecutionRow) -> Iterator[ExecutionRow]:
        """Yield executions of a case by a Run, one for each configuration of the file."""
        if row.run_id not in self._provenance:
            places = self._places(row.run_id).get(row.case_id, ())
            trace = (("trace_uid", json.dumps(row.run_id)),)
            yield replace(row, places=places, provenance=trace)
            return
        if row.run_id not in self._configurations:
            by_case = self._configurations[row.run_id] = defaultdict(list)
            for case_id, count, text in self._reader.configurations(row.run_id):
                by_case[case_id].append((count, text))
        known = replace(row, provenance=self._provenance[row.run_id])
        found = self._configurations[row.run_id].get(row.case_id, [])
        if sum(count for count, _ in found) != row.count:
            found = []
        for count, text in found:
            yield replace(known, count=count, configuration=text)
        if not found:
            yield known


def _calls(reader: TroveReader, query: Query) -> Iterator[tuple[Call, Case]]:
    """Yield the calls of all runs of a query, in their order, each with its case."""
    wanted = None if query.op is None else op_pattern(query.op)
    for row in reader.runs(query.run_id):
        if _matches(row.run, query):
            cases = _CasesById(reader)
            for call in reader.calls(row.run.id):
                case = cases[call.case_id]
                if wanted is None or wanted.fullmatch(case.op):
                    yield exact_call(call, case)


def _matches(run: Run, query: Query) -> bool:
    model, board = run.model or run.source, run.environment.board
    return matches_filter("model", query.model, model) and matches_filter(
        "board", query.board, board
    )


class _CasesById(dict[str, "Case"]):
    """The cases of a run, each read on its first use."""

    def __init__(self, reader: TroveReader) -> None:
        super().__init__()
        self._reader = reader

    def __missing__(self, case_id: str) -> Case:
        query = Query(case_id=case_id, outermost_only=False, data_movement=True)
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
