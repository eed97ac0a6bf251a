"""The files that calls name: their names are recorded, and replays have files of their own.

Where a file lies is the affair of a machine: the directory is no part of a case, which would be
another one for every user and every temporary directory. A replay never touches the file that a
recording names. What the call reads is written before, from the recorded spec of what it has
returned; the name is put back into what was traced.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath, PurePosixPath
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, Any, Final

from optrove.backends.watching import muted
from optrove.errors import NotReplayable
from optrove.model.case import Case
from optrove.model.values import Null, Struct, TensorSpec, Text, TtnnPlacement, Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from optrove.backends.watching import Arguments, Bind, Keywords

READING: Final = "ttnn.load_tensor"
"""The operation that makes its result of what is in a file."""

# By name, or by place in recordings that know no more.
_ALWAYS: Final = {READING: ("file_name", "arg0"), "ttnn.dump_tensor": ("file_name", "arg0")}
_AT_WILL: Final = {"ttnn.as_tensor": ("cache_file_name",)}

_STEM: Final = "tensor"
_LONGEST_ENDING: Final = 16


@dataclass(frozen=True, slots=True)
class StandIn:
    """A file in place of one that a call names in ``argument``.

    ``recorded`` is what stands there, ``value`` the whole path of this file in the same form, and
    ``traced`` what a trace tells of it.
    """

    argument: str
    recorded: Value
    value: Value
    traced: Value
    path: Path

    @property
    def notes(self) -> tuple[str, ...]:
        """Say what was done."""
        return (f"{self.argument} names a file; the call was given one of the replay's own",)

    def instead(self, arguments: Mapping[str, Value]) -> dict[str, Value]:
        """Return recorded arguments with this file in the place of the recorded one."""
        return {**arguments, self.argument: self.value}

    def as_recorded(self, case: Case) -> Case:
        """Return a call that was made with this file as one with the recorded file."""
        names = _names(case.op)
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


def file_argument(case: Case) -> str | None:
    """Return the argument of a case that names a file, None if none does, or more than one."""
    arguments = dict(case.arguments)
    given = [name for name in _ALWAYS.get(case.op, ()) if name in arguments]
    given += [name for name in _AT_WILL.get(case.op, ()) if arguments.get(name, Null()) != Null()]
    return given[0] if len(given) == 1 else None


@contextmanager
def standing_in(case: Case) -> Iterator[StandIn | None]:
    """Give the stand-in for the file of a case, None if it names none; gone after the block.

    Raise NotReplayable where there cannot be one.
    """
    argument = file_argument(case)
    if argument is None:
        if case.op in _ALWAYS:
            raise NotReplayable(f"{case.op} reads or writes a file, and the recording names none")
        yield None
        return
    recorded = dict(case.arguments)[argument]
    with TemporaryDirectory(prefix=_prefix(os.getpid()), ignore_cleanup_errors=True) as directory:
        name = _text_in(recorded)
        if name is None:
            raise NotReplayable(f"$.arguments.{argument}: it is not known which file this names")
        path = Path(directory) / f"{_STEM}{_ending(name)}"
        value, traced = (_spelled(recorded, text) for text in (str(path), path.name))
        yield StandIn(argument, recorded, value, traced, path)


def remove_files_of(process: int) -> None:
    """Remove what a process has left that ended in the middle of a call."""
    for directory in Path(gettempdir()).glob(f"{_prefix(process)}*"):
        shutil.rmtree(directory, ignore_errors=True)


def held_by_file(outputs: tuple[Value, ...] | None) -> TensorSpec:
    """Return the spec of the tensor that was read from a file; NotReplayable if none is known."""
    match outputs:
        case (TensorSpec(placement=TtnnPlacement()) as spec,):
            return spec
    raise NotReplayable(
        "it reads a file, and what it returned was not recorded, "
        "so no such file can be written for a replay"
    )


def write_file(ttnn: Any, tensor: Any, path: Path) -> None:
    """Write a tensor; RuntimeError where ttnn cannot."""
    with muted():
        ttnn.dump_tensor(path.with_name(f"{_STEM}.tensorbin"), tensor)
    path.with_name(f"{_STEM}.tensorbin").rename(path)


def _names(op: str) -> tuple[str, ...]:
    """Return what arguments of ``op`` are called that name files."""
    return (*_ALWAYS.get(op, ()), *_AT_WILL.get(op, ()))


def _prefix(process: int) -> str:
    return f"optrove-replay-{process}-"


def _text_in(recorded: Value) -> str | None:
    """Return the path that stands in an argument; None if it is none."""
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
    """Return a path without its directories; anything else, and what has no name, as it is."""
    if isinstance(live, str):
        return PurePosixPath(live).name or live
    return type(live)(live.name) if isinstance(live, PurePath) and live.name else live


def _ending(name: str) -> str:
    """Return how the name of a file ends, by which ttnn tells formats apart."""
    ending = PurePosixPath(name).suffix
    plain = ending[1:].isalnum() and ending.isascii() and len(ending) <= _LONGEST_ENDING
    return ending if plain else ""
