"""Files in arguments: recordings keep their names only, and replays use files of their own.

The directory of a file depends on the machine and is not part of a case: otherwise every user and
every temporary directory would make a new case. A replay never touches the file that a recording
names. The file that a call reads is written before, from the recorded spec of the call's output;
the recorded name is put back into the traced case.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath, PurePosixPath
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NotReplayable
from optrove.frameworks.probe_protocol import muted
from optrove.frameworks.ttnn.shadow.prepared_weights import HOST
from optrove.model.case import Case
from optrove.model.records import LOST
from optrove.model.values import Null, Struct, TensorSpec, Text, TtnnPlacement, Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from optrove.frameworks.probe_protocol import Arguments, Bind, Keywords

LOAD_OP: Final = "ttnn.load_tensor"
"""The operation that reads a file."""

CACHE_OP: Final = "ttnn.as_tensor"
"""The operation that reads a file if it exists, and else writes it."""

# The arguments that name files; by place in recordings that lack the names.
_REQUIRED: Final = {LOAD_OP: ("file_name", "arg0"), "ttnn.dump_tensor": ("file_name", "arg0")}
_OPTIONAL: Final = {CACHE_OP: ("cache_file_name",)}

_STEM: Final = "tensor"
_MAX_ENDING_CHARS: Final = 16
_PREFIX: Final = "optrove-replay-"
_OLD_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class ReplayFile:
    """The file of a replay in place of the one that a call names in ``argument``.

    ``op`` is ttnn's own name of the operation. ``recorded`` is the recorded argument, ``value`` the
    whole path of this file in the same form, and ``traced`` its form in a trace.
    """

    op: str
    argument: str
    recorded: Value
    value: Value
    traced: Value
    path: Path

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes about the replaced file."""
        empty = ", which was not there yet" if self.op == CACHE_OP else ""
        return (f"{self.argument} names a file; the call got one of the replay's own{empty}",)

    def substituted(self, arguments: Mapping[str, Value]) -> dict[str, Value]:
        """Return recorded arguments with this file in place of the recorded one."""
        return {**arguments, self.argument: self.value}

    def text_as_recorded(self, text: str) -> str:
        """Return a message about this file as one about the recorded file."""
        return text.replace(str(self.path), _text_in(self.recorded) or self.path.name)

    def as_recorded(self, case: Case) -> Case:
        """Return a case with this file as the case with the recorded file."""
        names = _names(self.op)
        arguments = [
            (name, self.recorded if name in names and value == self.traced else value)
            for name, value in case.arguments
        ]
        return Case(case.op, tuple(arguments))


def without_directories(op: str, bind: Bind) -> Bind:
    """Return a function that binds as ``bind`` does, but removes the directories of files."""
    names = _names(op)
    if not names:
        return bind

    def bind_names(arguments: Arguments, keywords: Keywords) -> dict[str, Any]:
        bound = bind(arguments, keywords)
        return {name: _name_only(live) if name in names else live for name, live in bound.items()}

    return bind_names


def place_of_file(case: Case) -> str | None:
    """Return the path of the argument that may name a file in a case; None if none can.

    The operation may have another name than ttnn's own.
    """
    last = case.op.rpartition(".")[2]
    known = {op.rpartition(".")[2]: names for op, names in (_REQUIRED | _OPTIONAL).items()}
    names = known.get(last, ())
    given = [name for name, value in case.arguments if name in names and value != Null()]
    if given:
        return f"$.arguments.{given[0]}"
    return "$.arguments" if any(op.endswith(f".{last}") for op in _REQUIRED) else None


@contextmanager
def replay_file(op: str, case: Case) -> Iterator[ReplayFile | None]:
    """Yield the replay's file of a case, None if it names none; remove it after the block.

    ``op`` is ttnn's own name of the operation. Raise NotReplayable if no file can replace it.
    """
    argument = _argument(op, case)
    if argument is None:
        yield None
        return
    recorded = dict(case.arguments)[argument]
    with TemporaryDirectory(prefix=_prefix(os.getpid()), ignore_cleanup_errors=True) as directory:
        name = _text_in(recorded)
        if name is None:
            raise NotReplayable(f"{LOST}does not tell which file $.arguments.{argument} names")
        path = Path(directory) / f"{_STEM}{_ending(name)}"
        value, traced = (_spelled(recorded, text) for text in (str(path), path.name))
        yield ReplayFile(op, argument, recorded, value, traced, path)


def remove_files_of(process: int) -> None:
    """Remove the files of a process that ended in the middle of a call."""
    for directory in Path(gettempdir()).glob(f"{_prefix(process)}*"):
        shutil.rmtree(directory, ignore_errors=True)


def remove_old_files() -> None:
    """Remove the old files of processes that are gone."""
    for directory in Path(gettempdir()).glob(f"{_PREFIX}*"):
        process = directory.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdecimal() and not _is_alive(int(process)) and _is_old(directory):
            shutil.rmtree(directory, ignore_errors=True)


def held_by_file(outputs: tuple[Value, ...] | None) -> TensorSpec:
    """Return the spec of the tensor in a file that was read; raise NotReplayable if unknown.

    The tensor is on the host: on the device the result might get the memory of the tensor that was
    written, and have its values without having been read.
    """
    match outputs:
        case (TensorSpec(placement=TtnnPlacement() as placement) as spec,):
            on_host = replace(placement, storage=HOST, mesh_shape=None, device=None)
            return replace(spec, placement=on_host)
    raise NotReplayable(
        f"{LOST}lacks what was in the file that it reads, so no such file can be written for a "
        f"replay"
    )


def write_file(ttnn: Any, tensor: Any, path: Path) -> None:
    """Write a tensor; raise NotReplayable if ttnn cannot."""
    draft = path.with_name(f"{_STEM}.tensorbin")
    try:
        with muted():
            ttnn.dump_tensor(draft, tensor)
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        raise NotReplayable(
            f"it reads a file, and ttnn cannot write one with what it returned: {first}"
        ) from error
    draft.rename(path)


def _argument(op: str, case: Case) -> str | None:
    """Return the argument that names a file; raise NotReplayable if that is unknown."""
    arguments = dict(case.arguments)
    if op in _REQUIRED:
        given = [name for name in _REQUIRED[op] if name in arguments]
        if len(given) != 1:
            raise NotReplayable(f"{LOST}names no file, and {op} reads or writes one")
        return given[0]
    given = [name for name in _OPTIONAL.get(op, ()) if arguments.get(name, Null()) != Null()]
    if given and arguments.get("tensor", Null()) == Null():
        raise NotReplayable(
            f"{LOST}lacks the cache that {op} has read, because it was called without a tensor"
        )
    return given[0] if given else None


def _names(op: str) -> tuple[str, ...]:
    """Return the arguments of ``op`` that name files."""
    return (*_REQUIRED.get(op, ()), *_OPTIONAL.get(op, ()))


def _prefix(process: int) -> str:
    return f"{_PREFIX}{process}-"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def _is_old(directory: Path) -> bool:
    """Return whether a directory is too old to be in use, even by a process in a container."""
    try:
        return time.time() - directory.stat().st_mtime > _OLD_SECONDS
    except OSError:  # it is gone already
        return False


def _text_in(recorded: Value) -> str | None:
    """Return the path in an argument; None if it is not a path."""
    match recorded:
        case Text(text) | Struct(fields=(("path", Text(text)),)):
            return text
    return None


def _spelled(recorded: Value, path: str) -> Value:
    """Return a path in the form in which another one was recorded."""
    if isinstance(recorded, Struct):
        return replace(recorded, fields=(("path", Text(path)),))
    return Text(path)


def _name_only(live: Any) -> Any:
    """Return a path without its directories; anything else, and a path without a name, as is."""
    if isinstance(live, str):
        return PurePosixPath(live).name or live
    return type(live)(live.name) if isinstance(live, PurePath) and live.name else live


def _ending(name: str) -> str:
    """Return the suffix of a file name, which determines the format for ttnn."""
    ending = PurePosixPath(name).suffix
    plain = ending[1:].isalnum() and ending.isascii() and len(ending) <= _MAX_ENDING_CHARS
    return ending if plain else ""
