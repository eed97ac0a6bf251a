"""Write a master file of version 2, which tt-metal's tools read, and ``master_in`` exactly.

Where the spelled arguments alone would be read as another Case than the one written, because it
knows more than the spellings can tell, the configuration also has the key ``optrove`` with the
exact Case. So a file that is read back always gives the same Cases and counts.

The Cases may come in any order and number: their lines wait in a temporary file until all
operations are known. Operations are sorted by name; each configuration is one line.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from optrove.codec.identity import case_data
from optrove.codec.text import write
from optrove.interop.contents import Contents
from optrove.interop.executions import summed
from optrove.interop.machines import machine_data
from optrove.interop.runs import Source, model_of
from optrove.interop.spelled import spelled
from optrove.interop.spellings import ArgumentReader
from optrove.model.case import argument_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import BinaryIO

    from optrove.codec.text import Json
    from optrove.model.case import Case
    from optrove.model.trove import ExecutionRow


@dataclass(frozen=True, slots=True)
class Written:
    """How many Cases and executions were written."""

    cases: int
    calls: int


def write_master(
    stream: BinaryIO,
    cases: Iterable[tuple[Case, Sequence[ExecutionRow]]],
    *,
    last_updated: str | None = None,
) -> Written:
    """Write a whole master file; ``last_updated`` is the time of the newest execution."""
    with tempfile.TemporaryFile() as waiting:
        lines = _Lines(waiting)
        for case, rows in cases:
            lines.add(case, rows)
        stream.write(b'{\n  "operations": {')
        lines.copy_to(stream)
        stream.write(b'},\n  "metadata": ')
        metadata = json.dumps(lines.metadata(last_updated), indent=2)
        stream.write(metadata.replace("\n", "\n  ").encode("ascii") + b"\n}\n")
        return Written(lines.count, lines.calls)


@dataclass(slots=True)
class _Lines:
    """The configurations in a temporary file, and where those of each operation are."""

    waiting: BinaryIO
    count: int = 0
    calls: int = 0
    sources: set[str] = field(default_factory=set)
    places: defaultdict[str, list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _contents: Contents = field(default_factory=Contents)
    _reader: ArgumentReader = field(default_factory=ArgumentReader)

    def add(self, case: Case, rows: Sequence[ExecutionRow]) -> None:
        """Put the configuration of one Case aside."""
        executions = summed(rows)
        line = json.dumps(self._configuration(case, executions))[1:].encode("ascii")
        self.places[case.op].append((self.waiting.tell(), len(line)))
        self.waiting.write(line)
        self.count += 1
        self.calls += sum(count for _, count in executions)
        self.sources.update(source.name for source, _ in executions)

    def _configuration(self, case: Case, executions: list[tuple[Source, int]]) -> dict[str, Json]:
        named = sorted(case.arguments, key=lambda item: argument_order(item[0]))
        # As a reader is going to see them: JSON joins pairs of surrogates, for example.
        arguments = json.loads(json.dumps({name: spelled(value) for name, value in named}))
        configuration: dict[str, Any] = {
            "config_hash": self._contents.case_id(case),
            "arguments": arguments,
            "executions": [_execution(source, count) for source, count in executions],
        }
        if not self._is_told(case, arguments):
            configuration["optrove"] = case_data(case)
        return configuration

    def _is_told(self, case: Case, arguments: dict[str, Json]) -> bool:
        """Tell whether the arguments as they are spelled are read as this very Case."""
        if "::" in case.op:
            return False
        read, _ = self._reader.case(case.op, arguments.items(), printed=False)
        return read == case

    def copy_to(self, stream: BinaryIO) -> None:
        """Write all operations with their configurations, numbered from one."""
        number = 0
        for index, op in enumerate(sorted(self.places)):
            stream.write(b",\n    " if index else b"\n    ")
            stream.write(write(op).encode("ascii") + b': {"configurations": [')
            for place, (begin, length) in enumerate(self.places[op]):
                number += 1
                self.waiting.seek(begin)
                head = f'{"," if place else ""}\n      {{"config_id": {number}, '
                stream.write(head.encode("ascii") + self.waiting.read(length))
            stream.write(b"\n    ]}")
        stream.write(b"\n  ")

    def metadata(self, last_updated: str | None) -> dict[str, Json]:
        """Return what a master file says about itself."""
        return {
            "models": sorted(self.sources),
            "unique_operations": len(self.places),
            "total_configurations": self.count,
            "operations_summary": {op: len(self.places[op]) for op in sorted(self.places)},
            "last_updated": last_updated,
        }


def _execution(source: Source, count: int) -> dict[str, Json]:
    told: dict[str, Json] = {
        "source": source.name,
        "machine_info": machine_data(source.machine),
        "count": count,
    }
    if source.model != model_of(source.name):
        told["model"] = source.model
    return told
