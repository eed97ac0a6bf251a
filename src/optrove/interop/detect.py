"""Find out what kind of file something is, and read it.

The readers of op lines and parameter files are imported when one is there: what they need takes
longer to import than most master files to read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optrove.errors import BadData, BadTarget, Fault
from optrove.interop.master_reader import is_master, read_master
from optrove.interop.text_form import is_text_form, read_text
from optrove.interop.understanding import bad, parse

if TYPE_CHECKING:
    from pathlib import Path

    from optrove.model.trove import Fidelity, Imported
    from optrove.serializer.text import Json

KNOWN = "a master JSON of tt-metal, op lines, a directory of parameter files, or a text export"


def read_file(path: Path, *, strict: bool = False) -> tuple[tuple[Imported, ...], Fidelity]:
    """Return the Runs that a file or directory tells of, and how well it was understood.

    BadData names every fault with its path if any part of it cannot be read, and with ``strict``
    also if any part of it had to be kept verbatim.
    """
    try:
        return _read(path, strict=strict)
    except BadData as error:
        faults = (Fault(f"{path}: {each.path}", each.problem) for each in error.faults)
        raise BadData(tuple(faults)) from error
    except OSError as error:
        raise BadTarget(f"{path} cannot be read: {error.strerror}; import {KNOWN}") from error


def _read(path: Path, *, strict: bool) -> tuple[tuple[Imported, ...], Fidelity]:
    if path.is_dir():
        return _read_directory(path, strict=strict)
    with path.open("rb") as stream:
        first = stream.readline()
    header = _first_line(first)
    if is_text_form(header):
        with path.open("rb") as stream:
            return read_text(stream, str(path), strict=strict)
    if _is_op_line(header):
        from optrove.interop.op_lines import read_call_lines

        with path.open("rb") as stream:
            return read_call_lines(stream, str(path), strict=strict)
    if not first:
        raise bad("$", f"the file is empty; import {KNOWN}")
    return _read_document(path, strict=strict)


def _is_op_line(data: Json) -> bool:
    return isinstance(data, dict) and data.keys() >= {"op_name", "inputs", "kwargs"}


def _first_line(raw: bytes) -> Json:
    """Return what the first line says by itself; None if it says nothing."""
    try:
        return parse(raw)
    except BadData:
        return None


def _read_document(path: Path, *, strict: bool) -> tuple[tuple[Imported, ...], Fidelity]:
    document = parse(path.read_bytes())
    if is_master(document):
        return read_master(document, str(path), strict=strict)
    if isinstance(document, dict) and "operation_name" in document:
        raise bad("$", f"one parameter file of many; import its directory: {path.parent}")
    raise bad("$", f"none of the files that can be imported: {KNOWN}")


def _read_directory(path: Path, *, strict: bool) -> tuple[tuple[Imported, ...], Fidelity]:
    from optrove.interop.parameter_directories import parameter_files, read_params_directory

    if not parameter_files(path):
        name = "1_ttnn_add_20260115_104616_345678.json"
        raise bad("$", f"a directory without parameter files; their names are like {name}")
    return read_params_directory(path, strict=strict)
