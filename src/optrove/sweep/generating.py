"""Make the vectors of a sweep module: ``python -m optrove.sweep.generating FILE OUTPUT ...``.

``optrove vectors`` and ``optrove sweep`` run this module in a process for each sweep module,
because a sweep module is the user's code: it may crash, end the process, or need another board.
With ``--vectors`` it reads the vectors from a file of tt-metal's sweep framework instead.

OUTPUT is JSON: ``{"error": TEXT}`` or the fields of ``GeneratedVectors``.

A suite has a list of values for each parameter. A name with commas stands for several parameters
whose values belong together: ``"input_shape,dtype": [([1, 32], a), ([1, 64], b)]``. Each
permutation is a vector. They are made one by one, all of them or a sample, however many there are.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import random
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from itertools import islice
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from optrove.errors import BadData, BadTarget, NotReplayable, OptroveError
from optrove.frameworks.executor import refuse_inert
from optrove.model.ops import VECTORS
from optrove.model.values import Callable, TensorSpec, walk
from optrove.replay.judge import error_line
from optrove.replay.sweep_module import (
    FACTS,
    TRACED_MACHINE,
    TRACED_SOURCE,
    every_combination,
    load_module,
    module_name,
    module_tables,
    takes,
    traceback_of,
)
from optrove.serializer.describe import describe
from optrove.serializer.hashes import canonical_text, case_text, text_hash
from optrove.serializer.wire import decode
from optrove.sweep.tt_metal_json import read_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

    from optrove.model.values import Value
    from optrove.serializer.tables import Tables

NOT_SAMPLED: Final = "not in the sample"

MANY: Final = 10_000
"""More permutations than this get a note: a sample of them is usually enough."""

_MAX_DRAWN: Final = 1_000_000
"""How many permutations of a suite are tried at most to find the vectors of a sample."""

Vector: TypeAlias = tuple[str, str, tuple[int, ...]]
"""Suite and case id of a vector, and the numbers of its arguments."""


@dataclass(slots=True)
class GeneratedVectors:
    """The vectors of a module. ``arguments`` are pairs of a name and the canonical JSON of a value.

    ``permutations == len(vectors) + sum(left_out.values())``.
    """

    name: str
    timeout: float | None = None
    suites: list[str] = field(default_factory=list)
    permutations: int = 0
    arguments: list[tuple[str, str]] = field(default_factory=list)
    vectors: list[Vector] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def leave_out(self, reason: str, count: int = 1) -> None:
        """Count vectors that are left out."""
        if count:
            self.left_out[reason] = self.left_out.get(reason, 0) + count


@dataclass(frozen=True, slots=True)
class Sample:
    """How many vectors are wanted, and the seed of the choice."""

    size: int
    seed: int = 0


def generate(
    file: Path,
    suite: str | None = None,
    *,
    all_cases: bool = False,
    sample: Sample | None = None,
) -> GeneratedVectors:
    """Import a module and make the vectors of one suite, or of all; BadTarget for its faults.

    With ``all_cases`` its loaders give every combination of traced values. A ``sample`` is divided
    evenly among the suites.
    """
    notes: list[str] = []
    module = _imported(file, notes, all_cases=all_cases)
    found = GeneratedVectors(module_name(file), _timeout(module, file), notes=notes)
    parameters = {str(name): suites for name, suites in vars(module)["parameters"].items()}
    for name in parameters:
        if not name.isprintable() or not name or name.startswith("$"):
            raise BadTarget(f"{file} has a suite called {name!r}; give it a name that can be read")
    if suite is not None and suite not in parameters:
        listed = ", ".join(parameters) or "none at all"
        raise BadTarget(f"{file} has no suite {suite!r}; it has {listed}")
    generator = _Generator(module, file, found)
    suites = [Suite(name, parameters[name]) for name in (parameters if suite is None else [suite])]
    found.suites += [each.name for each in suites]
    if sample is None:
        for each in suites:
            generator.add_suite(each)
        return found
    wanted = sample.size
    # The smallest first: the others get what it cannot fill.
    for number, each in enumerate(sorted(suites, key=lambda each: each.count)):
        share = -(-wanted // (len(suites) - number))
        wanted -= generator.add_suite(each, Sample(share, sample.seed))
    found.vectors.sort(key=lambda vector: found.suites.index(vector[0]))
    return found


def read_vectors_of(file: Path, vectors: Path, suite: str | None = None) -> GeneratedVectors:
    """Import a module and return its vectors in a file of tt-metal's form.

    BadTarget for faults of the module.
    """
    module = _imported(file, [], all_cases=False)
    found = GeneratedVectors(module_name(file), _timeout(module, file))
    generator = _Generator(module, file, found)
    for name, content in json.loads(vectors.read_text(encoding="utf-8")).items():
        if suite in (None, name):
            found.suites.append(name)
            for vector in content.values():
                found.permutations += 1
                if str(vector.get("validity", "")).endswith("INVALID"):
                    found.leave_out(f"invalid: {_first_line(vector.get('invalid_reason'))}")
                else:
                    generator.add_vector(name, vector)
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


class Suite:
    """One suite of a module: its permutations by number, the last parameter fastest.

    BadTarget for another form. A suite without parameters has no permutations.
    """

    def __init__(self, name: str, parameters: Any) -> None:
        self.name = name
        self.columns = _columns(name, parameters)
        self.count = prod(len(rows) for _, rows in self.columns) if self.columns else 0

    @property
    def names(self) -> list[str]:
        """The names of all parameters."""
        return [name for names, _ in self.columns for name in names]

    def rows(self, number: int) -> list[int]:
        """Return the row that a permutation has in each column."""
        chosen = []
        for _, rows in reversed(self.columns):
            number, row = divmod(number, len(rows))
            chosen.append(row)
        return chosen[::-1]

    def vector(self, rows: Sequence[int]) -> dict[str, Any]:
        """Return the parameters of a permutation."""
        return {
            name: item
            for (names, values), row in zip(self.columns, rows, strict=True)
            for name, item in zip(names, values[row], strict=True)
        }


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
            f"suite {suite!r} has a value for {','.join(names)} that is not a tuple of "
            f"{len(names)}; give one value for each of these parameters"
        )
    return value


def _drawn(count: int, seed: int) -> Iterator[int]:
    """Yield different numbers below ``count`` at random, all of them unless there are too many."""
    generator = random.Random(seed)  # noqa: S311 - a sample, not a secret
    if count <= _MAX_DRAWN:
        yield from generator.sample(range(count), count)
        return
    drawn: set[int] = set()
    while len(drawn) < _MAX_DRAWN:
        number = generator.randrange(count)
        if number not in drawn:
            drawn.add(number)
            yield number


class _Generator:
    """Adds the vectors of a module's suites to a GeneratedVectors, and counts those left out."""

    def __init__(self, module: ModuleType, file: Path, found: GeneratedVectors) -> None:
        self._module = module
        self._file = file
        self._found = found
        self._tables = module_tables(module)
        self._ids: set[str] = set()
        self._numbers: dict[tuple[str, str], int] = {}

    def add_suite(self, suite: Suite, sample: Sample | None = None) -> int:
        """Make the vectors of a suite, or a sample of them; return their number."""
        found, count = self._found, suite.count
        found.permutations += count
        if not count:
            found.notes.append(
                f"suite {suite.name} has no vectors: a list of its parameters is empty"
            )
            return 0
        problem = takes(self._module, suite.names)
        if problem is not None:
            found.leave_out(self._uncallable(suite.name, problem), count)
            return 0
        if sample is None:
            if count > MANY:
                found.notes.append(
                    f"suite {suite.name} has {count:,} permutations; --limit N takes a sample"
                )
            every = [vector for _, vector in self._made(suite, range(count))]
            found.vectors += every
            return len(every)
        drawn = _drawn(count, sample.seed)
        before = sum(found.left_out.values())
        made = sorted(islice(self._made(suite, drawn), sample.size))
        found.vectors += [vector for _, vector in made]
        found.leave_out(NOT_SAMPLED, count - len(made) - sum(found.left_out.values()) + before)
        return len(made)

    def _made(self, suite: Suite, numbers: Iterable[int]) -> Iterator[tuple[int, Vector]]:
        """Yield the vectors of these permutations, and count those left out."""
        # A value is described once, however many vectors have it.
        described: dict[tuple[int, int], list[int] | str] = {}
        for number in numbers:
            rows = suite.rows(number)
            reason = self._invalid(suite.name, suite.vector(rows))
            if reason is not None:
                self._found.leave_out(reason)
                continue
            for place in enumerate(rows):
                if place not in described:
                    names, values = suite.columns[place[0]]
                    pairs = zip(names, values[place[1]], strict=True)
                    described[place] = self._described(pairs)
            vector = self._vector(suite.name, [described[place] for place in enumerate(rows)])
            if isinstance(vector, str):
                self._found.leave_out(vector)
            else:
                yield number, vector

    def add_vector(self, suite: str, data: Mapping[str, Any]) -> None:
        """Add a single vector, given as the JSON of a file."""
        arguments = {
            name: item
            for name, item in data.items()
            if name not in FACTS or name in (TRACED_MACHINE, TRACED_SOURCE)
        }
        tag = data.get("tag")
        others = tag.get("arguments", {}) if isinstance(tag, dict) else {}
        problem = takes(self._module, [*arguments, *others])
        if problem is not None:
            self._found.leave_out(self._uncallable(suite, problem))
            return
        numbers = [self._described(arguments.items())]
        numbers += [[self._number(name, decode(item)) for name, item in others.items()]]
        vector = self._vector(suite, numbers)
        if isinstance(vector, str):
            self._found.leave_out(vector)
        else:
            self._found.vectors.append(vector)

    def _uncallable(self, suite: str, problem: str) -> str:
        return (
            f"of suite {suite!r}, with whose parameters run of {self._file} cannot be called: "
            f"{problem}; name its arguments like the parameters, and one more `device`"
        )

    def _described(self, arguments: Iterable[tuple[str, Any]]) -> list[int] | str:
        """Return the numbers of arguments, or why they cannot be recorded."""
        tables = self._tables()
        numbers = []
        for name, live in arguments:
            item = live
            if name == TRACED_SOURCE and not isinstance(live, list):
                item = [live]  # as in files
            try:
                value = describe(read_value(item, self._module, tables), tables)
            except (ValueError, KeyError, TypeError, AttributeError, BadData) as error:
                return f"cannot be recorded: {name}: {_first_line(error)}"
            problem = _unrecordable(name, value, tables)
            if problem is not None:
                return f"cannot be recorded: {problem}"
            numbers.append(self._number(name, value))
        return numbers

    def _number(self, name: str, value: Value) -> int:
        """Return the number of an argument, which is added if it is new."""
        argument = (name, canonical_text(value))
        if argument not in self._numbers:
            self._numbers[argument] = len(self._found.arguments)
            self._found.arguments.append(argument)
        return self._numbers[argument]

    def _vector(self, suite: str, described: Iterable[list[int] | str]) -> Vector | str:
        """Return a vector, or the reason if it is left out."""
        numbers: dict[str, int] = {}
        for each in described:
            if isinstance(each, str):
                return each
            numbers |= {self._found.arguments[number][0]: number for number in each}
        arguments = sorted(self._found.arguments[number] for number in numbers.values())
        case_id = text_hash(case_text(f"{VECTORS}{self._found.name}.{suite}", arguments))
        if case_id in self._ids:
            return "the same as another vector"
        self._ids.add(case_id)
        return suite, case_id, tuple(numbers.values())

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
        return f"invalid: {_first_line(reason)}" if invalid else None


def _first_line(reason: object) -> str:
    return (str(reason or "no reason given").splitlines() or [""])[0]


def _unrecordable(name: str, value: Value, tables: Tables) -> str | None:
    """Return why a value could not be rebuilt elsewhere; None if it can."""
    for _, part in walk(value):
        if isinstance(part, TensorSpec):
            return f"{name} is a tensor, and its numbers are not kept"
        if isinstance(part, Callable):
            return f"{name} holds {part.name}, a function or class"
    try:
        refuse_inert({name: value}, tables)
    except NotReplayable as error:
        return str(error).splitlines()[0]
    return None


def main(arguments: Sequence[str]) -> int:
    """Make the vectors that the arguments name, and write them or the error to a file."""
    parser = argparse.ArgumentParser(prog="python -m optrove.sweep.generating", allow_abbrev=False)
    parser.add_argument("file", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--suite", default=None)
    parser.add_argument("--board", default=None)
    parser.add_argument("--all-cases", action="store_true")
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--vectors", type=Path, default=None)
    options = parser.parse_args(arguments)
    sample = None if options.limit is None else Sample(options.limit, options.seed)
    faulthandler.enable()
    with ExitStack() as stack:
        try:
            if options.board:
                from optrove.frameworks.installed import torch_deferred
                from optrove.frameworks.ttnn.board.mock import mock_board

                with torch_deferred():  # modules that need it import it
                    stack.enter_context(mock_board(options.board))
            if options.vectors is None:
                made = generate(
                    options.file, options.suite, all_cases=options.all_cases, sample=sample
                )
            else:
                made = read_vectors_of(options.file, options.vectors, options.suite)
            result: dict[str, Any] = {each.name: getattr(made, each.name) for each in fields(made)}
        except OptroveError as error:
            result = {"error": str(error)}
        options.output.write_text(json.dumps(result), encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
