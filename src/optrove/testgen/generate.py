"""Choose recorded cases from a trove, generate tests of them, write and list the files."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import NotReplayable, UnusableResults
from optrove.frameworks.input_values import way_to_draw
from optrove.frameworks.kept_tensors import save_tensors
from optrove.frameworks.ttnn.board.table import BOARDS
from optrove.frameworks.ttnn.execute.files import place_of_file
from optrove.frameworks.ttnn.execute.invoking import CallNames
from optrove.model.values import tensors_in
from optrove.replay.device_choice import device_parameters
from optrove.replay.planning import planned_cases
from optrove.report.document import Command, Item, Items, Paragraph, Section
from optrove.report.wording import SHORT_ID, plural
from optrove.serializer.hashes import placement_hash
from optrove.testgen.cases import DrawnValues, Filling, RecordedCase
from optrove.testgen.files import INTEGER, MARK, generate
from optrove.testgen.torch_files import is_torch_op
from optrove.trove.query import select

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from optrove.model.case import Case
    from optrove.replay.planning import PlannedJob
    from optrove.report.document import Node
    from optrove.testgen.files import GeneratedFiles, UntestableCase
    from optrove.testgen.sequence_files import SequenceProgram
    from optrove.trove.query import CaseFilters
    from optrove.trove.reader import TroveReader

_DEFAULT_AXES: Final = {"ROW": "wormhole_b0", "COL": "blackhole"}
_ANY_BOARD: Final = "n300"
_MAX_NAMED: Final = 3
# Plugins such as anyio otherwise keep the parameters of tests, and nanobind reports leaks.
_WITHOUT_LEAKS: Final = "--assert=plain "


def tests_of(
    reader: TroveReader, names: Iterable[str], asked: CaseFilters, limit: int | None
) -> list[RecordedCase]:
    """Return the cases that names of ops or cases mean, each once."""
    found: dict[str, RecordedCase] = {}
    call_names = CallNames()
    for name in names:
        for answer in select(reader, replace(asked, name=name)):
            for planned in islice(planned_cases(reader, answer.query), limit):
                found.setdefault(planned.case_id, recorded_case(planned, call_names))
    return list(found.values())


def write_tests(
    cases: Iterable[RecordedCase], directory: Path, *, standalone: bool
) -> GeneratedFiles:
    """Generate the files that test some cases, and write them to a directory.

    NotReplayable if no case can be tested, UnusableResults if a file cannot be written.
    """
    generated = generate(cases, standalone=standalone)
    if not generated.files:
        left_out = generated.left_out
        first = left_out[0]
        many = f"any of {plural(len(left_out), 'case')}, such as " if len(left_out) > 1 else ""
        case = f"case {first.case_id[:SHORT_ID]} of {first.op}"
        raise NotReplayable(
            f"no test can be written for {many}{case}: {first.path}: {first.reason}"
        )
    for file in generated.files:
        _check_replaceable(directory / file.name)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file in generated.files:
            (directory / file.name).write_text(file.text, encoding="utf-8")
    except OSError as error:
        raise UnusableResults(
            f"no tests can be written to {directory}: {error}; give another directory with -o"
        ) from error
    return generated


def _check_replaceable(path: Path) -> None:
    """Raise UnusableResults for an existing file that testgen did not generate."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise UnusableResults(f"{path} cannot be replaced: {error}; give another -o") from error
    if MARK not in text:
        raise UnusableResults(
            f"{path} exists and was not made by optrove testgen; "
            f"move it away, or give another directory with -o"
        )


def write_reproducer(planned: PlannedJob, case: Case, directory: Path, board: str | None) -> Path:
    """Write the standalone file of a case that was derived from a recorded one; return its path.

    ``board`` is the mock board on which it fails, if any.
    """
    job = replace(planned.job, case=case, outputs=None)
    derived = replace(planned, job=job, case_id=placement_hash(case), calls=None)
    recorded = recorded_case(derived, CallNames())
    failing = replace(recorded, board=board or recorded.board)
    return directory / write_tests([failing], directory, standalone=True).files[0].name


def recorded_case(planned: PlannedJob, names: CallNames) -> RecordedCase:
    """Return a planned case with everything that a generated test needs."""
    if is_torch_op(planned.op):
        return RecordedCase(
            case_id=planned.case_id,
            case=planned.job.case,
            calls=planned.calls,
            outputs=planned.job.outputs,
        )
    called = names.passed(planned.job.case)
    device = device_parameters(planned.job)
    board = BOARDS.get(planned.board or "")
    if board is None or _DEFAULT_AXES.get(device.dispatch_axis or "") == board.arch:
        # The default axis of the board goes without saying.
        device = replace(device, dispatch_axis=None)
    if board is None:
        shape = device.mesh_shape or (1, 1)
        fitting = [each for each in BOARDS.values() if shape in each.mesh_shapes]
        board = min(fitting, key=lambda each: each.chips, default=None)
    return RecordedCase(
        case_id=planned.case_id,
        case=called.case,
        calls=planned.calls,
        outputs=planned.job.outputs,
        device=device,
        places=called.places,
        roles=called.roles,
        fillings=_fillings(called.case, dict(called.roles)),
        notes=called.notes,
        board=None if board is None else board.name,
        file=place_of_file(called.case),
    )


def _fillings(case: Case, roles: dict[str, str]) -> dict[str, Filling]:
    arguments = {roles.get(name, name): value for name, value in case.arguments}
    found = {}
    for name, value in case.arguments:
        first = next(tensors_in(value), None)
        if first is not None:
            integers = bool(INTEGER.search(first.dtype))
            draw, below = way_to_draw(roles.get(name, name), arguments, integers=integers)
            numbers = DrawnValues(getattr(draw, "__name__", "normal"))
            found[name] = Filling(numbers, max(1, below))
    return found


def tests_document(
    generated: GeneratedFiles, directory: Path, *, standalone: bool
) -> Iterator[Node]:
    """Yield the written files, the cases without a test, and the commands that run the tests."""
    files = generated.files
    for file in files:
        path = directory / file.name
        yield Paragraph(f"{path}  {plural(file.cases, 'case')} of {file.op}")
    tested = sum(file.cases for file in files)
    yield Paragraph(f"{plural(len(files), 'file')}, {plural(tested, 'case')}")
    yield from _left_out_section(generated.left_out)
    paths = [shlex.quote(str(directory / file.name)) for file in files]
    named = shlex.quote(str(directory)) if len(paths) > _MAX_NAMED else " ".join(paths)
    of_ttnn = [file for file in files if not is_torch_op(file.op)]
    plainly = standalone or not of_ttnn
    command = f"pytest {'' if plainly else _WITHOUT_LEAKS}{named}"
    alone = standalone and len(paths) == 1
    yield Command(f"run it with: python {named}" if alone else f"run them with: {command}")
    if standalone and not alone:
        yield Command(f"or one alone: python {paths[0]}")
    if not of_ttnn:
        return
    boards: Counter[str] = Counter()
    for file in of_ttnn:
        boards[file.board or _ANY_BOARD] += file.cases
    board = boards.most_common(1)[0][0]
    yield Command(f"without a board: {command} --optrove-board {board} --optrove-shadow")


def _left_out_section(left_out: Sequence[UntestableCase]) -> Iterator[Section]:
    """Yield the cases without a test by op and reason."""
    groups: defaultdict[tuple[str, str], list[UntestableCase]] = defaultdict(list)
    for each in left_out:
        groups[each.op, each.reason].append(each)
    items = []
    for (op, reason), some in groups.items():
        such = "such as " if len(some) > 1 else ""
        case = f"{such}case {some[0].case_id[:SHORT_ID]}"
        items.append(Item(len(some), f"{op} ({case}): {some[0].path}: {reason}"))
    if items:
        title = f"left out, since they cannot be written as tests: {plural(len(left_out), 'case')}"
        more = "(--json names each)" if len(groups) < len(left_out) else ""
        yield Section(title, (Items(tuple(items), more),))


def tests_data(generated: GeneratedFiles, directory: Path) -> dict[str, Any]:
    """Return the written files; ``docs/command-line.md`` describes the keys."""
    files, left_out = generated.files, generated.left_out
    return {
        "directory": str(directory),
        "files": [
            {"file": str(directory / file.name), "op": file.op, "cases": file.cases}
            for file in files
        ],
        "cases": sum(file.cases for file in files),
        "left_out": [
            {"case_id": each.case_id, "op": each.op, "path": each.path, "reason": each.reason}
            for each in left_out
        ],
    }


def write_program(program: SequenceProgram, path: Path) -> list[Path]:
    """Write a program, and its values beside it; UnusableResults if that is not possible."""
    _check_replaceable(path)
    files = [path]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(program.text, encoding="utf-8")
        if program.values:
            beside = path.with_suffix(".pt")
            save_tensors(program.values, beside)
            files.append(beside)
    except OSError as error:
        raise UnusableResults(
            f"the program cannot be written to {path}: {error}; give another file with -o"
        ) from error
    return files


def program_document(
    program: SequenceProgram, files: Sequence[Path], board: str | None
) -> Iterator[Node]:
    """Yield the written files, and the commands that run the program."""
    named = shlex.quote(str(files[0]))
    kept = f", with the values of {plural(len(program.values), 'tensor')}" if program.values else ""
    yield Paragraph(f"{files[0]}  {plural(program.calls, 'call')}{kept}")
    yield Command(f"run it with: python {named}")
    if board is not None:
        yield Command(f"without a board: pytest {named} --optrove-board {board} --optrove-shadow")


def program_data(program: SequenceProgram, files: Sequence[Path]) -> dict[str, Any]:
    """Return the written program; ``docs/command-line.md`` describes the keys."""
    return {
        "file": str(files[0]),
        "values": str(files[1]) if len(files) > 1 else None,
        "calls": program.calls,
    }
