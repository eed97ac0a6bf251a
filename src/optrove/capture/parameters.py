"""Write ``--trace-params`` files and ``--sketch`` lines, one per op call.

    {directory}/3_ttnn_add_20260115_104616_345678.json
    {"operation_number": 3, "operation_name": "ttnn.add", "timestamp": "20260115_104616_345678",
     "args": [{"position": 0, "value": ...}], "kwargs": {"dtype": null}, "num_tensors": 3,
     "return_value": ...}

None, booleans, numbers and strings are written unchanged, lists, tuples and dictionaries as lists
and objects, ttnn and torch tensors as objects with a ``type``, and everything else in the form of
``to_jsonable``. The form is that of tt-metal's guide to operation parameter tracing. The tracer in
ttnn 0.81 writes other files, and nothing at all in its default fast runtime mode:

- the guide has ``operation_number``, ``timestamp`` and ``num_tensors``, ttnn ``operation_id`` only;
- the guide says "bfloat16", "TILE", "DEVICE_STORAGE", ttnn "DataType.BFLOAT16", "Layout.TILE",
  "StorageType.DEVICE"; a torch dtype is "bfloat16" here, "torch.bfloat16" there;
- ``memory_config`` is in the form of ``to_jsonable`` here, with its shard specification, so that it
  can be rebuilt; ttnn writes printed text and a hash;
- ttnn has ``mesh_device`` in tensors and prints objects of unknown types; neither is done here.

Choices where the guide is silent: ``num_tensors`` counts every occurrence of a tensor in args,
kwargs and return value, as its text says (its example of an addition does not count the result).
``return_value`` is left out when the op returned None or raised; a call that raised has ``error``,
with ``type`` and ``message``. Calls are numbered when they end, so inner calls come before the call
that made them; the time is that of their start, in local time. Tensor methods such as ``cpu`` have
no file, since they are not operations (``tensor[...]`` is one). Values that cannot be read are left
out and ``values_omitted`` says why; the dtype is then the tensor's own. A tensor in several parts
has the list of its parts as ``values``, and their number as ``parts``. NaN and infinities are the
strings "nan", "inf" and "-inf" among values, and {"$float": ...} elsewhere.

One line in the journal for each call that has tensors:

    {"sketch": op_index, "of": [{"at": "args[0]", "count": ..., "min": ..., "max": ..., "mean": ...,
                                 "std": ..., "zero_share": ..., "nan_count": ...},
                                {"at": "output", "omitted": "why its numbers mean nothing"}]}

``at`` is ``args[N]``, ``kwargs.NAME`` or ``output``, followed by ``[N]`` or ``["KEY"]`` for a
tensor within a list or a dictionary. Tensors are read after the call, so an argument that was
updated in place shows its new numbers. Infinities are the strings "inf" and "-inf".
"""

from __future__ import annotations

import errno
import json
import math
import os
from collections import Counter
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.capture.sinks import op_error
from optrove.errors import NoNumbers
from optrove.frameworks.tensor_values import numbers_dtype, numbers_in_parts, sketch
from optrove.model.values import (
    List,
    Mapping,
    TensorSpec,
    Text,
    TorchPlacement,
    TtnnPlacement,
    Tuple,
    Value,
)
from optrove.serializer.parameter_files import STAMP, file_stem, tensor_count, tensor_form
from optrove.serializer.wire import encode
from optrove.settings import TRACE_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from optrove.capture.sinks import Observed
    from optrove.serializer.text import Json


FOLDER: Final = "operation_parameters"
DEFAULT_ROOT: Final = Path("generated/ttnn")

# The defaults of ttnn.CONFIG.root_report_path in the versions of ttnn. Set to "", it reads ".", so
# that counts as not set too.
_UNSET: Final = frozenset({"", ".", "generated/ttnn", "generated/ttnn/reports"})

_METHODS: Final = "ttnn.Tensor."
_INDEXING: Final = "ttnn.Tensor.__getitem__"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND: Final = timedelta(microseconds=1)


def parameter_directory(config: Any) -> Path:
    """Return the directory of the files, as an absolute path.

    As in ttnn's own tracer, TTNN_OPERATION_TRACE_DIR comes first and is the directory itself; then
    ``ttnn.CONFIG`` as it is now.
    """
    named = TRACE_DIRECTORY.value
    if named is not None:
        return Path(named).absolute()
    for name in ("operation_parameter_log_dir", "root_report_path"):
        chosen = getattr(config, name, None)
        if chosen is not None and os.fspath(chosen) not in _UNSET:
            return (Path(chosen) / FOLDER).absolute()
    return (DEFAULT_ROOT / FOLDER).absolute()


class ParameterFiles:
    """The sink of ``--trace-params``; OSError if a file cannot be written.

    ``directory`` is called for each file, since tests change it. Processes may share a directory:
    each numbers its own calls from 1, and no file is ever overwritten.
    """

    __slots__ = ("_directory", "_files", "_made", "_numbers", "_of", "values")

    def __init__(
        self, directory: Callable[[], Path], *, values: bool = False, of: str = ""
    ) -> None:
        """Write files into ``directory``, for ops whose names begin with ``of``."""
        self._directory = directory
        self._of = of
        self.values = values
        self._numbers = count(1)
        self._files: list[Path] = []
        self._made: list[Path] = []

    def completed(self, observed: Observed) -> None:
        """Write the file of one call; tensor methods have no file."""
        method = observed.op.startswith(_METHODS) and observed.op != _INDEXING
        if method or not observed.op.startswith(self._of):
            return
        content = self._content(observed)
        began = (_EPOCH + timedelta(microseconds=observed.started_ns // 1000)).astimezone()
        self._write(file_stem(content["operation_number"], observed.op), began, content)

    def close(self) -> None:
        """Do nothing: every file is complete when its call has ended."""

    def written(self) -> Counter[Path]:
        """Return the number of files written, by directory."""
        return Counter(path.parent for path in self._files)

    def remove(self) -> tuple[Path, ...]:
        """Remove the files of this process, and the directories made for them if empty.

        Missing files do not matter. Return the directories that other processes still use, for
        ``remove_empty`` when these have ended.
        """
        while self._files:
            self._files.pop().unlink(missing_ok=True)
        made, self._made = self._made, []
        return remove_empty(made)

    def _content(self, observed: Observed) -> dict[str, Json]:
        described = observed.described
        keywords = dict(described.keywords)
        content: dict[str, Json] = {
            "operation_number": next(self._numbers),
            "operation_name": observed.op,
            "timestamp": "",
            "args": [
                {"position": position, "value": self._form(live, value)}
                for position, (live, value) in enumerate(
                    zip(observed.arguments, described.inputs, strict=True)
                )
            ],
            "kwargs": {
                name: self._form(live, keywords[name]) for name, live in observed.keywords.items()
            },
            "num_tensors": sum(map(tensor_count, (*described.inputs, *keywords.values()))),
        }
        if observed.error is not None:
            error = op_error(observed.error)
            content["error"] = {"type": error.type, "message": error.message}
        elif observed.result is not None and described.output is not None:
            content["num_tensors"] += tensor_count(described.output)
            content["return_value"] = self._form(observed.result, described.output)
        return content

    def _form(self, live: Any, value: Value) -> Json:
        """Return the JSON of an argument; ``value`` is its description, and bounds the work."""
        match value:
            case List(items) | Tuple(items) if type(live) in (list, tuple):
                return [self._form(each, item) for each, item in zip(live, items, strict=True)]
            case Mapping(entries) if type(live) is dict:
                named = {key.value: item for key, item in entries if isinstance(key, Text)}
                if len(named) == len(live) and not any(name.startswith("$") for name in named):
                    return {name: self._form(each, named[name]) for name, each in live.items()}
            case TensorSpec(placement=TtnnPlacement() | TorchPlacement()):
                return self._tensor(live, value)
            case _:
                pass
        return encode(value)

    def _tensor(self, live: Any, spec: TensorSpec) -> dict[str, Json]:
        values = _read(live, spec.dtype.rpartition(".")[2]) if self.values else None
        return tensor_form(spec, values)

    def _write(self, stem: str, began: datetime, content: dict[str, Json]) -> None:
        """Write a file under the first free name: with the next microsecond if one is taken."""
        directory = self._directory()
        while True:
            stamp = began.strftime(STAMP)
            path = directory / f"{stem}_{stamp}.json"
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            except FileNotFoundError:
                self._make(directory)
            except FileExistsError:
                began += _MICROSECOND
            else:
                break
        self._files.append(path)
        content["timestamp"] = stamp
        text = json.dumps(content, indent=2, allow_nan=False)
        with open(descriptor, "w", encoding="ascii") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(text)

    def _make(self, directory: Path) -> None:
        missing = []
        while not directory.is_dir():
            missing.append(directory)
            directory = directory.parent
        self._made += [each for each in reversed(missing) if _is_new(each)]


def _is_new(directory: Path) -> bool:
    """Create a directory; False if another process did."""
    try:
        directory.mkdir()
    except FileExistsError:
        if not directory.is_dir():
            raise
        return False
    return True


def remove_empty(directories: Iterable[Path]) -> tuple[Path, ...]:
    """Remove directories that are empty, inner ones first; return those that are not."""
    return tuple(each for each in sorted(directories, reverse=True) if not _is_gone(each))


def _is_gone(directory: Path) -> bool:
    """Remove a directory; False if it is not empty."""
    try:
        directory.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
            raise
        return error.errno == errno.ENOENT
    return True


def _read(live: Any, dtype: str) -> dict[str, Json]:
    """Return the keys for the values of a tensor, or for the reason why they are omitted."""
    try:
        parts = json_numbers(numbers_in_parts(live))
    except NoNumbers as lack:
        return {"values_omitted": str(lack)}
    if len(parts) == 1:
        return {"dtype": numbers_dtype(dtype), "values": parts[0]}
    return {"dtype": numbers_dtype(dtype), "values": parts, "parts": len(parts)}


def json_numbers(nested: Any) -> Json:
    """Return nested data as JSON: numbers that JSON lacks become "nan", "inf" and "-inf"."""
    if isinstance(nested, list):
        return [json_numbers(each) for each in nested]
    if isinstance(nested, dict):
        return {name: json_numbers(each) for name, each in nested.items()}
    if isinstance(nested, float) and not math.isfinite(nested):
        return str(nested)
    if isinstance(nested, complex):
        return {"$complex": [json_numbers(nested.real), json_numbers(nested.imag)]}
    return nested


class Sketches:
    """The sink of ``--sketch``; OSError if the journal cannot be written.

    ``write`` appends a line to the journal of the current process.
    """

    __slots__ = ("_write",)

    def __init__(self, write: Callable[[Json], None]) -> None:
        self._write = write

    def completed(self, observed: Observed) -> None:
        """Write the line of one call, if it has tensors."""
        found = [_sketched(at, live) for at, live in _tensors(observed)]
        if found:
            self._write({"sketch": observed.op_index, "of": found})

    def close(self) -> None:
        """Do nothing: every line is written when its call has ended."""


def _sketched(at: str, live: Any) -> dict[str, Json]:
    try:
        facts = sketch(live)
    except NoNumbers as lack:
        return {"at": at, "omitted": str(lack)}
    return {"at": at, **json_numbers(facts)}


def _tensors(observed: Observed) -> Iterator[tuple[str, Any]]:
    """Yield every tensor of a call with its place."""
    described = observed.described
    for position, live in enumerate(observed.arguments):
        yield from _within(f"args[{position}]", live, described.inputs[position])
    for name, value in described.keywords:
        yield from _within(f"kwargs.{name}", observed.keywords[name], value)
    if described.output is not None:
        yield from _within("output", observed.result, described.output)


def _within(at: str, live: Any, value: Value) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of one argument; ``value`` is its description, and bounds the work."""
    match value:
        case TensorSpec():
            yield at, live
        case List(items) | Tuple(items) if type(live) in (list, tuple):
            for index, (each, item) in enumerate(zip(live, items, strict=True)):
                yield from _within(f"{at}[{index}]", each, item)
        case Mapping(entries) if type(live) is dict:
            for key, item in entries:
                if isinstance(key, Text) and key.value in live:
                    yield from _within(f'{at}["{key.value}"]', live[key.value], item)
        case _:
            return
