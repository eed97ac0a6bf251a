"""The table of file formats, and the detection of a file's format.

``FORMATS`` is the place to add a format. ``import``, ``diff`` and ``TTNN_MASTER_JSON_PATH`` read
every format in the table by ``read_file``; ``export --format NAME`` writes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from optrove.errors import BadData, BadTarget
from optrove.interop.fidelity import parse
from optrove.interop.master_reader import is_master, read_master
from optrove.interop.master_writer import write_master
from optrove.interop.op_lines import is_op_line, read_call_lines, write_call_lines
from optrove.interop.parameter_directories import (
    parameter_files,
    read_params_directory,
    write_params_directory,
)
from optrove.interop.text_form import is_text_form, read_text, write_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from optrove.interop.machines import Exported
    from optrove.model.trove import Fidelity, Imported
    from optrove.serializer.text import Json

Content: TypeAlias = "tuple[tuple[Imported, ...], Fidelity]"
"""The Runs of a file, and how well it was understood."""

KNOWN: Final = (
    "a master JSON of tt-metal, op lines, a directory of parameter files, or a text export"
)


class Candidate:
    """A file or directory whose format is unknown; it is parsed as far as detection needs it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_directory = path.is_dir()

    @cached_property
    def first_line(self) -> Json:
        """The data of the first line; None if it is not JSON by itself."""
        if self.is_directory:
            return None
        with self.path.open("rb") as stream:
            raw = stream.readline()
        if not raw:
            raise BadData.at("$", f"the file is empty; import {KNOWN}")
        try:
            return parse(raw)
        except BadData:
            return None

    @cached_property
    def document(self) -> Json:
        """The data of the whole file; BadData when it is not JSON."""
        return None if self.is_directory else parse(self.path.read_bytes())


@dataclass(frozen=True, slots=True)
class Format:
    """A file format: its name for ``--format``, how it is detected, read and written.

    ``write`` takes a stream, or the path of a directory with ``is_directory``. With ``of_calls``
    it writes calls with their cases, one by one; else cases with their executions.
    """

    name: str
    detect: Callable[[Candidate], bool]
    read: Callable[[Candidate, bool], Content]
    write: Callable[[Any, Iterable[Any]], Exported]
    of_calls: bool = False
    is_directory: bool = False


def _read_text(file: Candidate, strict: bool) -> Content:  # noqa: FBT001 - the signature of Format.read
    with file.path.open("rb") as stream:
        return read_text(stream, str(file.path), strict=strict)


def _read_op_lines(file: Candidate, strict: bool) -> Content:  # noqa: FBT001 - the signature of Format.read
    with file.path.open("rb") as stream:
        return read_call_lines(stream, str(file.path), strict=strict)


FORMATS: Final = (
    Format("text", lambda file: is_text_form(file.first_line), _read_text, write_text),
    Format(
        name="jsonl",
        detect=lambda file: is_op_line(file.first_line),
        read=_read_op_lines,
        write=write_call_lines,
        of_calls=True,
    ),
    Format(
        name="params",
        detect=lambda file: file.is_directory and bool(parameter_files(file.path)),
        read=lambda file, strict: read_params_directory(file.path, strict=strict),
        write=write_params_directory,
        of_calls=True,
        is_directory=True,
    ),
    Format(
        name="master",
        detect=lambda file: is_master(file.document),
        read=lambda file, strict: read_master(file.document, str(file.path), strict=strict),
        write=write_master,
    ),
)
"""The formats in the order of detection; the last one has to parse the whole file."""


def read_file(path: Path, *, strict: bool = False) -> Content:
    """Return the Runs of a file or directory, and how well it was understood.

    BadData lists every fault with its path if any part cannot be read, and with ``strict`` also
    if any part had to be kept verbatim.
    """
    try:
        file = Candidate(path)
        for each in FORMATS:
            if each.detect(file):
                return each.read(file, strict)
        raise BadData.at("$", _unknown(file))
    except BadData as error:
        raise error.within(str(path)) from error
    except OSError as error:
        raise BadTarget(f"{path} cannot be read: {error.strerror}; import {KNOWN}") from error


def _unknown(file: Candidate) -> str:
    if file.is_directory:
        name = "1_ttnn_add_20260115_104616_345678.json"
        return f"a directory without parameter files; their names are like {name}"
    if isinstance(file.document, dict) and "operation_name" in file.document:
        return f"one parameter file of many; import its directory: {file.path.parent}"
    return f"not a file that can be imported; import {KNOWN}"
