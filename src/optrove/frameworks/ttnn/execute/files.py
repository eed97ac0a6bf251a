"""The files that calls name: their names are recorded, and replays have files of their own.

Where a file lies is the affair of a machine: the directory is no part of a case, which would be
another one for every user and every temporary directory. A replay never touches the file that a
recording names. What the call reads is written before, from the recorded spec of what it has
returned; the name is put back into what was traced.
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
from optrove.frameworks.ttnn.execute.inputs import HOST
from optrove.model.case import Case
from optrove.model.values import Null, Struct, TensorSpec, Text, TtnnPlacement, Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from optrove.frameworks.probe_protocol import Arguments, Bind, Keywords

READING: Final = "ttnn.load_tensor"
"""The operation that makes its result of what is in a file."""

CACHING: Final = "ttnn.as_tensor"
"""The operation that reads a file, if it is there, and else writes it."""

# By name, or by place in recordings that know no more.
_ALWAYS: Final = {READING: ("file_name", "arg0"), "ttnn.dump_tensor": ("file_name", "arg0")}
_AT_WILL: Final = {CACHING: ("cache_file_name",)}

_STEM: Final = "tensor"
_LONGEST_ENDING: Final = 16
_PREFIX: Final = "optrove-replay-"
_OLD_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class StandIn:
    """A file in place of one that a call names in ``argument``.

    ``op`` is the operation by ttnn's own name. ``recorded`` is what stands there, ``value`` the
    whole path of this file in the same observed, and ``traced`` what a trace tells of it.
    """

    op: str
    argument: str
    recorded: Value
    value: Value
    traced: Value
    path: Path

    @property
    def notes(self) -> tuple[str, ...]:
        """Say what was done."""
        empty = ", which was not there yet" if self.op == CACHING else ""
        return (f"{self.argument} names a file; the call got one of the replay's own{empty}",)

    def instead(self, arguments: Mapping[str, Value]) -> dict[str, Value]:
        """Return recorded arguments with this file in the place of the recorded one."""
        return {**arguments, self.argument: self.value}

    def text_as_recorded(self, text: str) -> str:
        """Return what was said of this file as if it had been said of the recorded one."""
        return text.replace(str(self.path), _text_in(self.recorded) or self.path.name)

    def as_recorded(self, case: Case) -> Case:
        """Return a call that was made with this file as one with the recorded file."""
        names = _names(self.op)
        arguments = [
            (name, self.recorded if name in names and value == self.traced else value)
            for name, value in case.arguments
        ]
        return Case(case.op, tuple(arguments))


def without_directories(op: str, bind: Bind) -> Bind:
    """Return what names the arguments of ``op`` as ``bind`` does, files by their names only."""
    names = _names(op)
    if not names:
        return bind

    def bind_names(arguments: Arguments, keywords: Keywords) -> dict[str, Any]:
        bound = bind(arguments, keywords)
        return {name: _name_only(live) if name in names else live for name, live in bound.items()}

    return bind_names


def place_of_file(case: Case) -> str | None:
    """Return the path to what may name a file in a case, None if there can be none.

    Nobody has to know the operation for that: it may go by another name than ttnn's own.
    """
    last = case.op.rpartition(".")[2]
    known = {op.rpartition(".")[2]: names for op, names in (_ALWAYS | _AT_WILL).items()}
    names = known.get(last, ())
    given = [name for name, value in case.arguments if name in names and value != Null()]
    if given:
        return f"$.arguments.{given[0]}"
    return "$.arguments" if any(op.endswith(f".{last}") for op in _ALWAYS) else None


@contextmanager
def standing_in(op: str, case: Case) -> Iterator[StandIn | None]:
    """Give the stand-in for the file of a case, None if it names none; gone after the block.

    ``op`` is what ttnn itself calls the operation. Raise NotReplayable where there can be no file.
    """
    argument = _argument(op, case)
    if argument is None:
        yield None
        return
    recorded = dict(case.arguments)[argument]
    with TemporaryDirectory(prefix=_prefix(os.getpid()), ignore_cleanup_errors=True) as directory:
        name = _text_in(recorded)
        if name is None:
            raise NotReplayable(f"$.arguments.{argument}: it is not known which file this names")
        path = Path(directory) / f"{_STEM}{_ending(name)}"
        value, traced = (_spelled(recorded, text) for text in (str(path), path.name))
        yield StandIn(op, argument, recorded, value, traced, path)


def remove_files_of(process: int) -> None:
    """Remove what a process has left that ended in the middle of a call."""
    for directory in Path(gettempdir()).glob(f"{_prefix(process)}*"):
        shutil.rmtree(directory, ignore_errors=True)


def remove_old_files() -> None:
    """Remove what was left long ago by processes that nobody has survived."""
    for directory in Path(gettempdir()).glob(f"{_PREFIX}*"):
        process = directory.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdecimal() and not _is_alive(int(process)) and _is_old(directory):
            shutil.rmtree(directory, ignore_errors=True)


def held_by_file(outputs: tuple[Value, ...] | None) -> TensorSpec:
    """Return the spec of what was read from a file, as it lies there; NotReplayable if unknown.

    It is that of a tensor on the host: on the device the result might get the memory of what was
    written, and would have its numbers without having been read.
    """
    match outputs:
        case (TensorSpec(placement=TtnnPlacement() as placement) as spec,):
            on_host = replace(placement, storage=HOST, mesh_shape=None, device=None)
            return replace(spec, placement=on_host)
    raise NotReplayable(
        "it reads a file, and what it returned was not recorded, "
        "so no such file can be written for a replay"
    )


def write_file(ttnn: Any, tensor: Any, path: Path) -> None:
    """Write a tensor; NotReplayable where ttnn cannot."""
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
    """Return the argument that names a file; NotReplayable where there is no knowing."""
    arguments = dict(case.arguments)
    if op in _ALWAYS:
        given = [name for name in _ALWAYS[op] if name in arguments]
        if len(given) != 1:
            raise NotReplayable(f"{op} reads or writes a file, and the recording names none")
        return given[0]
    given = [name for name in _AT_WILL.get(op, ()) if arguments.get(name, Null()) != Null()]
    if given and arguments.get("tensor", Null()) == Null():
        raise NotReplayable(f"without a tensor, {op} has read its cache, which is not here")
    return given[0] if given else None


def _names(op: str) -> tuple[str, ...]:
    """Return what arguments of ``op`` are called that name files."""
    return (*_ALWAYS.get(op, ()), *_AT_WILL.get(op, ()))


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
    """Tell whether no call can be at work there: one that we do not see may be, in a container."""
    try:
        return time.time() - directory.stat().st_mtime > _OLD_SECONDS
    except OSError:  # it is gone already
        return False


def _text_in(recorded: Value) -> str | None:
    """Return the path that stands in an argument; None if it is none."""
    match recorded:
        case Text(text) | Struct(fields=(("path", Text(text)),)):
            return text
    return None


def _spelled(recorded: Value, path: str) -> Value:
    """Return a path in the observed in which another one was recorded."""
    if isinstance(recorded, Struct):
        return replace(recorded, fields=(("path", Text(path)),))
    return Text(path)


def _name_only(live: Any) -> Any:
    """Return a path without its directories; anything else, and what has no name, as it is."""
    if isinstance(live, str):
        return PurePosixPath(live).name or live
    return type(live)(live.name) if isinstance(live, PurePath) and live.name else live


def _ending(name: str) -> str:
    """Return how the name of a file ends, by which ttnn tells formats apart."""
    ending = PurePosixPath(name).suffix
    plain = ending[1:].isalnum() and ending.isascii() and len(ending) <= _LONGEST_ENDING
    return ending if plain else ""
