"""Make the vectors of a sweep module: ``python -m optrove.sweep.generating FILE OUTPUT ...``.

The process that ``optrove vectors`` and ``optrove sweep`` start for a module, since it is the
user's code: it may crash, end the process, or be meant for another board. What it gives, or what
was wrong, goes to a file of JSON.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadTarget, NotReplayable, OptroveError
from optrove.frameworks.executor import refuse_inert
from optrove.frameworks.installed import LoadedTables
from optrove.model.case import Case
from optrove.model.ops import VECTORS
from optrove.model.values import Callable, TensorSpec, walk
from optrove.replay.sweep_module import (
    every_combination,
    load_module,
    module_name,
    takes,
    told,
    traceback_of,
)
from optrove.serializer.describe import describe
from optrove.serializer.described import Descriptions
from optrove.sweep.permutations import permutations

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

    from optrove.model.values import Value
    from optrove.serializer.tables import Tables

SAME: Final = "the same as another vector"
INVALID: Final = "invalid"
UNRECORDABLE: Final = "cannot be recorded"

_RESERVED: Final = "$"


@dataclass(slots=True)
class Generated:
    """What a module gives; ``vectors`` are suite, case_id and content of a Case for each.

    ``permutations == len(vectors) + sum(left_out.values())``.
    """

    name: str
    timeout: float | None = None
    suites: list[str] = field(default_factory=list)
    permutations: int = 0
    vectors: list[tuple[str, str, str]] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def generate(file: Path, suite: str | None = None, *, all_cases: bool = False) -> Generated:
    """Import a module and make the vectors of a suite, or of all; BadTarget for its faults.

    With ``all_cases`` its loaders give every combination of traced values.
    """
    notes = _Notes()
    logger = logging.getLogger("optrove")
    level = logger.level
    logger.addHandler(notes)
    logger.setLevel(logging.INFO)
    token = every_combination.set(all_cases)
    try:
        module = load_module(file)
    finally:
        every_combination.reset(token)
        logger.removeHandler(notes)
        logger.setLevel(level)
    found = Generated(module_name(file), _timeout(module, file), notes=notes.lines)
    making = _Making(module, file, found)
    parameters = {str(name): suites for name, suites in vars(module)["parameters"].items()}
    for name in _chosen(parameters, suite, file):
        making.suite(name, parameters[name])
    return found


class _Notes(logging.Handler):
    """Keeps what optrove logs while a module is imported, such as how much was traced."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        self.lines.append(record.getMessage())


def _chosen(parameters: Mapping[str, Any], suite: str | None, file: Path) -> list[str]:
    names = list(parameters)
    for name in names:
        if not name.isprintable() or not name or name.startswith(_RESERVED):
            raise BadTarget(f"{file} has a suite called {name!r}; give it a name that can be read")
    if suite is None:
        return names
    if suite not in names:
        listed = ", ".join(names) or "none at all"
        raise BadTarget(f"{file} has no suite {suite!r}; it has {listed}")
    return [suite]


def _timeout(module: ModuleType, file: Path) -> float | None:
    given = getattr(module, "TIMEOUT", None)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or given <= 0:
        raise BadTarget(f"TIMEOUT of {file} is {given!r}; give it in seconds, more than 0")
    return float(given)


class _Making:
    """Makes vectors of one module, and counts what is left out."""

    def __init__(self, module: ModuleType, file: Path, found: Generated) -> None:
        self._module = module
        self._file = file
        self._found = found
        self._tables = LoadedTables()
        self._descriptions = Descriptions()
        self._known: set[str] = set()

    def suite(self, name: str, parameters: Any) -> None:
        """Make the vectors of one suite."""
        found = self._found
        found.suites.append(name)
        before = found.permutations
        for vector in permutations(name, parameters):
            if found.permutations == before:
                self._check_arguments(name, vector)
            found.permutations += 1
            self._vector(name, vector)
        if found.permutations == before:
            found.notes.append(f"suite {name} has no vectors: a list of its parameters is empty")

    def _check_arguments(self, suite: str, vector: dict[str, Any]) -> None:
        problem = takes(self._module, set(vector))
        if problem is not None:
            raise BadTarget(
                f"run of {self._file} cannot be called with the parameters of suite {suite!r}: "
                f"{problem}; name its arguments like the parameters, and one more `device`"
            )

    def _vector(self, suite: str, vector: dict[str, Any]) -> None:
        reason = self._invalid(suite, vector)
        if reason is not None:
            self._leave_out(f"{INVALID}: {reason}")
            return
        tables = self._tables()
        named = {name: describe(item, tables) for name, item in vector.items()}
        problem = _unrecordable(named, tables)
        if problem is not None:
            self._leave_out(f"{UNRECORDABLE}: {problem}")
            return
        case = Case(f"{VECTORS}{self._found.name}.{suite}", tuple(named.items()))
        described = self._descriptions.of(case)
        if described.case_id in self._known:
            self._leave_out(SAME)
            return
        self._known.add(described.case_id)
        self._found.vectors.append((suite, described.case_id, described.content))

    def _leave_out(self, reason: str) -> None:
        left_out = self._found.left_out
        left_out[reason] = left_out.get(reason, 0) + 1

    def _invalid(self, suite: str, vector: dict[str, Any]) -> str | None:
        """Return why the module does not want a vector; None if it does."""
        invalidate = getattr(self._module, "invalidate_vector", None)
        if invalidate is None:
            return None
        about = {"suite_name": suite, "sweep_name": self._found.name}
        try:
            answer = invalidate({**about, **vector})
        except (Exception, SystemExit) as error:
            raise BadTarget(
                f"invalidate_vector of {self._file} failed on a vector of suite {suite!r}: "
                f"{told(error)}\n{traceback_of(error, self._file)}"
            ) from error
        invalid, reason = answer if isinstance(answer, (tuple, list)) else (answer, None)
        return (str(reason or "no reason given").splitlines() or [""])[0] if invalid else None


def _unrecordable(named: Mapping[str, Value], tables: Tables) -> str | None:
    """Return why a vector could not be made again elsewhere; None if it can."""
    for name, value in named.items():
        for _, part in walk(value):
            if isinstance(part, TensorSpec):
                return f"{name} is a tensor, and its numbers are not kept"
            if isinstance(part, Callable):
                return f"{name} holds {part.name}, a function or class"
    try:
        refuse_inert(named, tables)
    except NotReplayable as error:
        return str(error).splitlines()[0]
    return None


def main(arguments: Sequence[str]) -> int:
    """Make vectors as the arguments say, and write them down, or what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m optrove.sweep.generating", allow_abbrev=False)
    parser.add_argument("file", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--suite", default=None)
    parser.add_argument("--board", default=None)
    parser.add_argument("--all-cases", action="store_true")
    options = parser.parse_args(arguments)
    faulthandler.enable()
    with ExitStack() as stack:
        try:
            if options.board:
                from optrove.frameworks.ttnn.board.mock import mock_board

                stack.enter_context(mock_board(options.board))
            result: dict[str, Any] = asdict(
                generate(options.file, options.suite, all_cases=options.all_cases)
            )
        except OptroveError as error:
            result = {"error": str(error)}
        options.output.write_text(json.dumps(result), encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
