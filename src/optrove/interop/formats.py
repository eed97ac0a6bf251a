"""The table of file formats, and the detection of a file's format.

``FORMATS`` is the place to add a format. ``import``, ``diff`` and ``TTNN_MASTER_JSON_PATH`` read
every format in the table by ``read_file``; ``export --format NAME`` writes it. The command line
takes its choices and help texts from the table, so that a format imports its module only when used.
"""

from __future__ import annotations

import codecs
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from optrove.errors import BadData, BadTarget

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from optrove.interop.fidelity import Unreadable
    from optrove.interop.machines import Content, Exported
    from optrove.serializer.text import Json

_BEGINNING: Final = 100
_JSON_BEGINNINGS: Final = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""Byte order marks: what follows may be JSON in an encoding that has to be changed."""


class Candidate:
    """A file or directory whose format is unknown; it is parsed as far as detection needs it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_directory = path.is_dir()

    @cached_property
    def first_text(self) -> str:
        """The beginning of a file; empty for a directory."""
        if self.is_directory:
            return ""
        with self.path.open("rb") as stream:
            return stream.read(_BEGINNING).decode("utf-8", "replace")

    @cached_property
    def first_line(self) -> Json:
        """The data of the first line; None if it is not JSON by itself."""
        from optrove.interop.fidelity import parse

        if self.is_directory:
            return None
        with self.path.open("rb") as stream:
            raw = stream.readline()
        if not raw:
            raise BadData.at("$", f"the file is empty; import one of: {FILES}")
        try:
            return parse(raw)
        except BadData:
            return None

    @cached_property
    def document(self) -> Json:
        """The data of the whole file; BadData when it is not JSON.

        Only a master file may have parts that are not readable.
        """
        from optrove.interop.fidelity import check_whole
        from optrove.interop.master_reader import is_master

        document, unreadable = self._parts
        if not is_master(document):
            check_whole(unreadable)
        return document

    @property
    def is_whole(self) -> bool:
        """Whether all parts of the document are readable."""
        return not self._parts[1]

    @cached_property
    def _parts(self) -> tuple[Json, Sequence[Unreadable]]:
        from optrove.interop.fidelity import parse_parts

        if self.is_directory:
            return None, ()
        text = self.path.read_bytes()
        if not text.startswith(_JSON_BEGINNINGS) and text.lstrip()[:1] not in (b"{", b"["):
            raise BadData.at("$", UNKNOWN_FILE)
        return parse_parts(text)


class Format(Protocol):
    """A file format: its name for ``--format``, its texts, and how it is detected and converted."""

    name: ClassVar[str]
    file: ClassVar[str]
    """How messages name a file of the format."""
    about: ClassVar[str]
    """The help text of ``--format NAME``."""
    of_calls: ClassVar[bool] = False
    """Whether it has calls with their cases, one by one; else cases with their executions."""
    is_directory: ClassVar[bool] = False
    """Whether it is written to the path of a directory; else to a stream."""
    is_written: ClassVar[bool] = True
    """Whether ``export`` writes it."""
    suffix: ClassVar[str] = ""
    """The suffix of files that ``export`` writes in this format unless ``--format`` is given."""

    def detect(self, file: Candidate) -> bool:
        """Return whether a file has this format."""
        ...

    def read(self, file: Candidate, *, strict: bool) -> Content:
        """Return the Runs of a file, and how well it was understood."""
        ...

    def write(self, target: Any, items: Iterable[Any]) -> Exported:
        """Write calls or cases, and return how many."""
        ...


class TextFormat(Format):
    """One line per case, sorted."""

    name = "text"
    suffix = ".txt"
    file = "a text export"
    about = "one line per case, sorted: for git, and for diff"

    def detect(self, file: Candidate) -> bool:
        """Return whether the first line is the header of a text export."""
        from optrove.interop.text_form import is_text_form

        return is_text_form(file.first_line)

    def read(self, file: Candidate, *, strict: bool) -> Content:
        """Return the Runs of a text export."""
        from optrove.interop.text_form import read_text

        with file.path.open("rb") as stream:
            return read_text(stream, str(file.path), strict=strict)

    def write(self, target: Any, items: Iterable[Any]) -> Exported:
        """Write cases to a stream."""
        from optrove.interop.text_form import write_text

        return write_text(target, items)


class OpLineFormat(Format):
    """One line of JSON per call."""

    name = "jsonl"
    suffix = ".jsonl"
    file = "op lines (--jsonl, --ops-jsonl)"
    about = "one line per call, as --ops-jsonl writes them"
    of_calls = True

    def detect(self, file: Candidate) -> bool:
        """Return whether the first line is a call."""
        from optrove.interop.op_line_files import is_op_line

        return is_op_line(file.first_line)

    def read(self, file: Candidate, *, strict: bool) -> Content:
        """Return the Runs of op lines."""
        from optrove.interop.op_line_files import read_call_lines

        with file.path.open("rb") as stream:
            return read_call_lines(stream, str(file.path), strict=strict)

    def write(self, target: Any, items: Iterable[Any]) -> Exported:
        """Write calls to a stream."""
        from optrove.interop.op_line_files import write_call_lines

        return write_call_lines(target, items)


class ParameterDirectoryFormat(Format):
    """A directory with one JSON file per call."""

    name = "params"
    file = "a directory of parameter files"
    about = "a directory with one JSON file per call"
    of_calls = True
    is_directory = True

    def detect(self, file: Candidate) -> bool:
        """Return whether it is a directory of parameter files."""
        from optrove.interop.parameter_directories import trace_directories

        return file.is_directory and bool(trace_directories(file.path))

    def read(self, file: Candidate, *, strict: bool) -> Content:
        """Return the Runs of a directory."""
        from optrove.interop.parameter_directories import read_params_directory

        return read_params_directory(file.path, strict=strict)

    def write(self, target: Any, items: Iterable[Any]) -> Exported:
        """Write calls to a directory."""
        from optrove.interop.parameter_directories import write_params_directory

        return write_params_directory(target, items)


class MasterFormat(Format):
    """The JSON that tt-metal's sweeps load."""

    name = "master"
    suffix = ".json"
    file = "a master JSON of tt-metal"
    about = "the JSON that tt-metal's sweeps load"

    def detect(self, file: Candidate) -> bool:
        """Return whether the document is a master file, of either generation."""
        from optrove.interop.master_reader import is_master

        return is_master(file.document)

    def read(self, file: Candidate, *, strict: bool) -> Content:
        """Return the Runs of a master file."""
        from optrove.interop.master_reader import read_master

        return read_master(file.document, str(file.path), strict=strict, whole=file.is_whole)

    def write(self, target: Any, items: Iterable[Any]) -> Exported:
        """Write cases to a stream."""
        from optrove.interop.master_writer import write_master

        return write_master(target, items)


class OperatorInputs(Format):
    """The operator-input logs of PyTorch."""

    name = "op-inputs"
    file = "operator inputs of PyTorch"
    about = "operator inputs of PyTorch, as its operator_inp_logs have them"

    def detect(self, file: Candidate) -> bool:
        """Return whether the file begins as a log does."""
        from optrove.interop.operator_inputs import is_operator_log

        return is_operator_log(file.first_text)

    def read(self, file: Candidate, *, strict: bool) -> Content:
        """Return the run of a log."""
        from optrove.interop.operator_inputs import read_operator_log

        text = file.path.read_text(encoding="utf-8")
        return read_operator_log(text, str(file.path), strict=strict)

    def write(self, target: Any, items: Iterable[Any]) -> Exported:
        """Write cases to a stream."""
        from optrove.interop.operator_inputs import write_operator_log

        return write_operator_log(target, items)


class OperatorInputsJson(Format):
    """The texts of operator-input logs in JSON."""

    name = "op-inputs-json"
    file = "operator inputs in JSON"
    about = "the same texts in JSON"

    def detect(self, file: Candidate) -> bool:
        """Return whether the document has operators and texts of their arguments."""
        from optrove.interop.operator_inputs import is_operator_json

        return is_operator_json(file.document)

    def read(self, file: Candidate, *, strict: bool) -> Content:
        """Return the run of a document."""
        from optrove.interop.operator_inputs import read_operator_json

        return read_operator_json(file.document, str(file.path), strict=strict)

    def write(self, target: Any, items: Iterable[Any]) -> Exported:
        """Write cases to a stream."""
        from optrove.interop.operator_inputs import write_operator_json

        return write_operator_json(target, items)


class ExecutionTrace(Format):
    """The execution traces of PyTorch, which are only read."""

    name = "execution-trace"
    file = "an execution trace of PyTorch"
    about = "the Chakra JSON of PyTorch's ExecutionTraceObserver"
    is_written = False

    def detect(self, file: Candidate) -> bool:
        """Return whether the document has a schema and nodes."""
        from optrove.interop.execution_traces import is_execution_trace

        return is_execution_trace(file.document)

    def read(self, file: Candidate, *, strict: bool) -> Content:
        """Return the run of a trace."""
        from optrove.interop.execution_traces import read_execution_trace

        return read_execution_trace(file.document, str(file.path), strict=strict)

    def write(self, target: Any, items: Iterable[Any]) -> Exported:
        """Refuse: a trove has no order of all operations and no times of each."""
        raise NotImplementedError(self.name)


FORMATS: Final[tuple[Format, ...]] = (
    TextFormat(),
    OpLineFormat(),
    OperatorInputs(),
    ParameterDirectoryFormat(),
    OperatorInputsJson(),
    ExecutionTrace(),
    MasterFormat(),
)
"""The formats in the order of detection; the last ones have to parse the whole file."""

SUPERSET: Final = "superset"
"""The export for BI tools, which is no format of a file."""

WRITTEN: Final = (*(each.name for each in FORMATS if each.is_written), SUPERSET)
"""The values of ``export --format``."""

FILES: Final = ", ".join(each.file for each in FORMATS)
"""The files of these formats, as messages and help texts list them."""

UNKNOWN_FILE: Final = f"a file of no known format; import one of: {FILES}"

OWN_FILES: Final = "a directory of journals, a trove"
"""The files of optrove that can be imported as well."""


def read_file(path: Path, *, strict: bool = False) -> Content:
    """Return the Runs of a file or directory, and how well it was understood.

    BadData lists every fault with its path if any part cannot be read, and with ``strict`` also
    if any part had to be kept verbatim.
    """
    try:
        file = Candidate(path)
        for each in FORMATS:
            if each.detect(file):
                return each.read(file, strict=strict)
        raise BadData.at("$", _unknown(file))
    except BadData as error:
        raise error.within(str(path)) from error
    except OSError as error:
        raise BadTarget(
            f"{path} cannot be read: {error.strerror}; import one of: {FILES}"
        ) from error


def _unknown(file: Candidate) -> str:
    if file.is_directory:
        name = "1_ttnn_add_20260115_104616_345678.json"
        return f"a directory without parameter files; their names are like {name}"
    if isinstance(file.document, dict) and "operation_name" in file.document:
        return f"one parameter file of many; import its directory: {file.path.parent}"
    return UNKNOWN_FILE
