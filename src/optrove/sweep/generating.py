"""Make the vectors of a sweep module: ``python -m optrove.sweep.generating FILE OUTPUT ...``.

``optrove vectors`` and ``optrove sweep`` run this module in a process for each sweep module,
because a sweep module is the user's code: it may crash, end the process, or need another board.
The vectors, or the error, are written to OUTPUT as JSON.

A suite has a list of values for each parameter. A name with commas stands for several parameters
whose values belong together: ``"input_shape,dtype": [([1, 32], a), ([1, 64], b)]``.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optrove.errors import BadTarget, NotReplayable, OptroveError
from optrove.frameworks.executor import refuse_inert
from optrove.frameworks.installed import LoadedTables
from optrove.model.case import Case
from optrove.model.ops import VECTORS
from optrove.model.values import Callable, TensorSpec, walk
from optrove.replay.judge import error_line
from optrove.replay.sweep_module import (
    every_combination,
    load_module,
    module_name,
    takes,
    traceback_of,
)
from optrove.serializer.describe import describe
from optrove.serializer.described import Descriptions
from optrove.sweep.traced import MOST_VECTORS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

    from optrove.model.values import Value
    from optrove.serializer.tables import Tables


@dataclass(slots=True)
class Generated:
    """The vectors of a module; for each its suite, its case id and the content of its Case.

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
    """Import a module and make the vectors of one suite, or of all; BadTarget for its faults.

    With ``all_cases`` its loaders give every combination of traced values.
    """
    notes: list[str] = []
    module = _imported(file, notes, all_cases=all_cases)
    found = Generated(module_name(file), _timeout(module, file), notes=notes)
    parameters = {str(name): suites for name, suites in vars(module)["parameters"].items()}
    for name in parameters:
        if not name.isprintable() or not name or name.startswith("$"):
            raise BadTarget(f"{file} has a suite called {name!r}; give it a name that can be read")
    if suite is not None and suite not in parameters:
        listed = ", ".join(parameters) or "none at all"
        raise BadTarget(f"{file} has no suite {suite!r}; it has {listed}")
    generator = _Generator(module, file, found)
    for name in parameters if suite is None else [suite]:
        generator.add_suite(name, parameters[name])
    return found


def _imported(file: Path, notes: list[str], *, all_cases: bool) -> ModuleType:
    """Import a module, and add the log messages of its loaders to the notes."""

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            notes.append(record.getMessage())

    logger = logging.getLogger("optrove")
    handler, level = Notes(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    token = every_combination.set(all_cases)
    try:
        return load_module(file)
    finally:
        every_combination.reset(token)
        logger.removeHandler(handler)
        logger.setLevel(level)


def _timeout(module: ModuleType, file: Path) -> float | None:
    given = getattr(module, "TIMEOUT", None)
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, (int, float)) or given <= 0:
        raise BadTarget(f"TIMEOUT of {file} is {given!r}; give it in seconds, more than 0")
    return float(given)


class _Generator:
    """Adds the vectors of a module's suites to a Generated, and counts those left out."""

    def __init__(self, module: ModuleType, file: Path, found: Generated) -> None:
        self._module = module
        self._file = file
        self._found = found
        self._tables = LoadedTables()
        self._descriptions = Descriptions()
        self._known: set[str] = set()

    def add_suite(self, name: str, parameters: Any) -> None:
        """Make the vectors of one suite."""
        found = self._found
        found.suites.append(name)
        before = found.permutations
        for vector in permutations(name, parameters):
            if found.permutations == before:
                self._check_arguments(name, vector)
            found.permutations += 1
            reason = self._add(name, vector)
            if reason is not None:
                found.left_out[reason] = found.left_out.get(reason, 0) + 1
        if found.permutations == before:
            found.notes.append(f"suite {name} has no vectors: a list of its parameters is empty")

    def _check_arguments(self, suite: str, vector: dict[str, Any]) -> None:
        problem = takes(self._module, set(vector))
        if problem is not None:
            raise BadTarget(
                f"run of {self._file} cannot be called with the parameters of suite {suite!r}: "
                f"{problem}; name its arguments like the parameters, and one more `device`"
            )

    def _add(self, suite: str, vector: dict[str, Any]) -> str | None:
        """Add a vector; return the reason if it is left out."""
        invalid = self._invalid(suite, vector)
        if invalid is not None:
            return f"invalid: {invalid}"
        tables = self._tables()
        named = {name: describe(item, tables) for name, item in vector.items()}
        problem = _unrecordable(named, tables)
        if problem is not None:
            return f"cannot be recorded: {problem}"
        case = Case(f"{VECTORS}{self._found.name}.{suite}", tuple(named.items()))
        described = self._descriptions.of(case)
        if described.case_id in self._known:
            return "the same as another vector"
        self._known.add(described.case_id)
        self._found.vectors.append((suite, described.case_id, described.content))
        return None

    def _invalid(self, suite: str, vector: dict[str, Any]) -> str | None:
        """Return why the module calls a vector invalid; None if it is valid."""
        invalidate = getattr(self._module, "invalidate_vector", None)
        if invalidate is None:
            return None
        about = {"suite_name": suite, "sweep_name": self._found.name}
        try:
            answer = invalidate({**about, **vector})
        except (Exception, SystemExit) as error:
            raise BadTarget(
                f"invalidate_vector of {self._file} failed on a vector of suite {suite!r}: "
                f"{error_line(error)}\n{traceback_of(error, self._file)}"
            ) from error
        invalid, reason = answer if isinstance(answer, (tuple, list)) else (answer, None)
        return (str(reason or "no reason given").splitlines() or [""])[0] if invalid else None


def _unrecordable(named: Mapping[str, Value], tables: Tables) -> str | None:
    """Return why a vector could not be rebuilt elsewhere; None if it can."""
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


def permutations(suite: str, parameters: Any) -> Iterator[dict[str, Any]]:
    """Return the keyword arguments of each vector of a suite, the last parameter fastest.

    BadTarget names the suite if it has too many, or another form. A suite without parameters has
    no vectors.
    """
    columns = _columns(suite, parameters)
    if not columns:
        return iter(())
    count = prod(len(values) for _, values in columns)
    if count > MOST_VECTORS:
        sizes = " x ".join(f"{len(values)} {','.join(names)}" for names, values in columns)
        raise BadTarget(
            f"suite {suite!r} has {count:,} permutations ({sizes}), and at most {MOST_VECTORS:,} "
            f"are allowed; give fewer values, or divide it into several suites"
        )
    chosen = product(*(values for _, values in columns))
    names = [name for several, _ in columns for name in several]
    return (
        dict(zip(names, (item for values in each for item in values), strict=True))
        for each in chosen
    )


def _columns(suite: str, parameters: Any) -> list[tuple[tuple[str, ...], list[tuple[Any, ...]]]]:
    """Return the parameters that belong together, each time with the tuples of their values."""
    if not isinstance(parameters, Mapping):
        raise BadTarget(
            f"suite {suite!r} is of {type(parameters).__name__}; "
            f"give a dictionary with a list of values for each parameter"
        )
    found = []
    for name, values in parameters.items():
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise BadTarget(
                f"parameter {name!r} of suite {suite!r} is of {type(values).__name__}; "
                f"give a list of values, also for a single one"
            )
        names = tuple(part.strip() for part in str(name).split(","))
        several = [tuple(_together(suite, names, value)) for value in values]
        found.append((names, several))
    return found


def _together(suite: str, names: tuple[str, ...], value: Any) -> Iterable[Any]:
    """Return a value for each of the names."""
    if len(names) == 1:
        return (value,)
    if not isinstance(value, (tuple, list)) or len(value) != len(names):
        raise BadTarget(
            f"suite {suite!r} has a value for {','.join(names)} that is no tuple of "
            f"{len(names)}; give one value for each of these parameters"
        )
    return value


def main(arguments: Sequence[str]) -> int:
    """Make the vectors that the arguments name, and write them or the error to a file."""
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
