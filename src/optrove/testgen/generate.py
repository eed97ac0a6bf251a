"""Choose recorded cases from a trove, generate tests of them, write and list the files."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from optrove.errors import NotReplayable, UnusableResults
from optrove.frameworks.input_values import way_to_draw
from optrove.frameworks.installed import version_of
from optrove.frameworks.kept_tensors import kept_tensor, save_tensors
from optrove.frameworks.ttnn.board.table import BOARDS
from optrove.frameworks.ttnn.execute.files import place_of_file
from optrove.frameworks.ttnn.execute.invoking import CallNames
from optrove.model.causes import error_line
from optrove.model.records import DeviceKind
from optrove.model.torch_target import TorchTarget
from optrove.model.values import tensors_in
from optrove.replay.capsules import FROM_SEED
from optrove.replay.device_choice import device_parameters
from optrove.replay.planning import planned_cases
from optrove.report.attempts import UNSAID, VERDICTS
from optrove.report.document import Command, Item, Items, Paragraph, Section, paragraphs
from optrove.report.wording import SHORT_ID, plural
from optrove.serializer.hashes import placement_hash
from optrove.testgen.cases import DrawnValues, Filling, RecordedCase
from optrove.testgen.files import INTEGER, MARK, UntestableCase, generate
from optrove.testgen.torch_files import is_torch_op
from optrove.trove.query import select
from optrove.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from optrove.frameworks.kept_tensors import KeptTensor
    from optrove.model.capsules import Capsule
    from optrove.model.case import Case
    from optrove.model.records import Attempt
    from optrove.replay.device_choice import TargetDevice
    from optrove.replay.planning import PlannedJob
    from optrove.report.document import Node
    from optrove.testgen.files import GeneratedFiles
    from optrove.testgen.sequence_files import SequenceProgram
    from optrove.testgen.shrink import Shrunk
    from optrove.trove.query import CaseFilters
    from optrove.trove.reader import TroveReader

_DEFAULT_AXES: Final = {"ROW": "wormhole_b0", "COL": "blackhole"}
_ANY_BOARD: Final = "n300"
_MAX_NAMED: Final = 3
_MAX_SECONDS: Final = 300.0
_MARKED_BYTES: Final = 4096
"""A generated file has its mark within these bytes."""

ENVIRONMENT: Final = "environment.txt"
"""The file of a zip that says how its reproducer fails, and with which software."""

_NAME_IT: Final = "name its id to have a test that expects the error"

# Plugins such as anyio otherwise keep the parameters of tests, and nanobind reports leaks.
_WITHOUT_LEAKS: Final = "--assert=plain "


def cases_to_test(
    reader: TroveReader, names: Iterable[str], asked: CaseFilters, limit: int | None
) -> tuple[list[PlannedJob], list[UntestableCase]]:
    """Return the cases that names of ops or cases mean, each once, and those that are left out.

    A case that raised when it was recorded is left out unless its own id is among the names.
    """
    found: dict[str, PlannedJob] = {}
    by_id: set[str] = set()
    for name in names:
        for answer in select(reader, replace(asked, name=name)):
            for planned in islice(planned_cases(reader, answer.query), limit):
                found.setdefault(planned.case_id, planned)
                if answer.query.case_id is not None:
                    by_id.add(planned.case_id)
    good = [each for each in found.values() if each.raised is None or each.case_id in by_id]
    raised = [
        UntestableCase(each.case_id, each.op, "$", _raised_text(each.raised), raised=True)
        for each in found.values()
        if each.raised is not None and each.case_id not in by_id
    ]
    return good, raised


def _raised_text(error: str) -> str:
    return f"raised when it was recorded: {error_line(error)}"


def recorded_cases(cases: Iterable[PlannedJob]) -> Iterator[RecordedCase]:
    """Yield cases with everything that a generated test needs; each capsule is a case."""
    names = CallNames()
    for planned in cases:
        recorded = recorded_case(planned, names)
        if FROM_SEED in planned.notes:
            note = f"Case {planned.case_id[:SHORT_ID]} has no capsule; its values are random."
            recorded = replace(recorded, notes=(*recorded.notes, note))
        for capsule in planned.job.capsules or (None,):
            yield recorded if capsule is None else _with_values(recorded, capsule)


def _with_values(recorded: RecordedCase, capsule: Capsule) -> RecordedCase:
    of_torch = is_torch_op(recorded.case.op)
    every = ((s, kept_tensor([capsule], s, as_storage=of_torch)) for s in recorded.case.tensors())
    kept = {spec.identity: each for spec, each in every if each is not None}
    return replace(recorded, kept=kept, kept_from=capsule.op_index)


def write_tests(
    cases: Iterable[RecordedCase],
    directory: Path,
    *,
    standalone: bool,
    raised: Iterable[UntestableCase] = (),
) -> GeneratedFiles:
    """Generate the files that test some cases, and write them to a directory.

    ``raised`` are cases that are left out since they raised when they were recorded. NotReplayable
    if no case can be tested, UnusableResults if a file cannot be written.
    """
    generated = generate(cases, standalone=standalone, raised=raised)
    if not generated.files:
        left_out = generated.left_out
        first = left_out[0]
        many = f"any of {plural(len(left_out), 'case')}, such as " if len(left_out) > 1 else ""
        case = f"case {first.case_id[:SHORT_ID]} of {first.op}"
        advice = f"; {_NAME_IT}" if first.raised else ""
        raise NotReplayable(f"no test can be written for {many}{case}: {first.why}{advice}")
    for file in generated.files:
        _check_replaceable(directory / file.name, file.values)
    for file in generated.files:
        _write(directory / file.name, file.text, file.values)
    return generated


def values_beside(path: Path) -> Path:
    """Return the file with the recorded values of a generated one."""
    return path.with_suffix(".safetensors")


def _check_replaceable(path: Path, values: Sequence[KeptTensor]) -> None:
    """Raise UnusableResults for existing files that testgen did not generate."""
    for each in (path, values_beside(path)) if values else (path,):
        try:
            with each.open("rb") as stream:
                beginning = stream.read(_MARKED_BYTES)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise UnusableResults(f"{each} cannot be replaced: {error}; give another -o") from error
        if MARK.encode() not in beginning:
            raise UnusableResults(
                f"{each} exists and was not made by optrove testgen; "
                f"move it away, or give another directory with -o"
            )


def _write(path: Path, text: str, values: Sequence[KeptTensor]) -> list[Path]:
    """Write a generated file, and its values beside it."""
    files = [path]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if values:
            save_tensors(values, values_beside(path), MARK)
            files.append(values_beside(path))
    except OSError as error:
        raise UnusableResults(f"{path} cannot be written: {error}; give another -o") from error
    return files


def write_reproducer(
    planned: PlannedJob, shrunk: Shrunk, directory: Path, board: str | None
) -> list[Path]:
    """Write the standalone file of a shrunk case; return the paths of it and of its values.

    ``board`` is the mock board on which it fails, if any, or the text of the TorchTarget.
    """
    case = shrunk.case
    job = replace(planned.job, case=case, outputs=None, capsules=shrunk.capsules)
    # It fails now, whatever it did when it was recorded.
    derived = replace(planned, job=job, case_id=placement_hash(case), calls=None, raised=None)
    (recorded,) = recorded_cases([derived])
    failing = replace(recorded, shrunk_from=planned.case_id, seed=job.seed)
    if is_torch_op(case.op):
        failing = replace(failing, target=TorchTarget.parse(board))
    else:
        failing = replace(failing, board=board or recorded.board)
    (file,) = write_tests([failing], directory, standalone=True).files
    path = directory / file.name
    return [path, values_beside(path)] if file.values else [path]


def why_not_failing(file: Path, where: TargetDevice) -> str | None:
    """Run a reproducer once; return what it does instead of failing, None if it fails.

    It is not run on a board or a simulator, where a failure may need a reset or take long.
    """
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    if where.device_kind in (DeviceKind.HARDWARE, DeviceKind.SIMULATOR):
        return None
    if version_of("pytest") is None:
        if where.device_kind is not DeviceKind.HOST:
            return "was not run here: pytest is not installed"
        words = [sys.executable]  # A standalone test of torch needs no pytest.
    if where.device_kind is not DeviceKind.HOST:
        shadow = ("--optrove-shadow",) if where.device_kind is DeviceKind.SHADOW else ()
        words += ["--optrove-board", str(where.board), *shadow]
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter, and a file of ours
            [*words, str(file)], capture_output=True, text=True, timeout=_MAX_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:  # a hang is a failure, too
        return None
    last = (done.stdout.strip() or done.stderr.strip()).rpartition("\n")[2]
    if done.returncode == 0:
        return f"passes here: {last}"
    # 1 is a failed test, and a crash has the number of its signal.
    return f"cannot be run here: {last}" if done.returncode > 1 else None


def write_zip(path: Path, write: Callable[[Path], tuple[list[Path], list[str]]]) -> None:
    """Write a reproducer, its values and a text about its environment as one zip.

    ``write`` writes files to a directory, and returns their paths and lines about them.
    UnusableResults if the zip cannot be written, or if the file there is another one.
    """
    _check_zip(path)
    with TemporaryDirectory(prefix="optrove-zip-") as made:
        files, about = write(Path(made))
        temporary = path.with_name(f".{path.name}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with ZipFile(temporary, "w", ZIP_DEFLATED) as archive:
                for file in files:
                    archive.write(file, file.name)
                archive.writestr(ENVIRONMENT, "\n".join((*about, *_software())) + "\n")
            temporary.rename(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise UnusableResults(f"{path} cannot be written: {error}; give another -o") from error


def _check_zip(path: Path) -> None:
    if not path.exists():
        return
    try:
        with ZipFile(path) as archive:
            ours = MARK in archive.read(ENVIRONMENT).decode("utf-8", "replace")
    except (OSError, BadZipFile, KeyError):  # it is something else
        ours = False
    if not ours:
        raise UnusableResults(
            f"{path} exists and was not made by optrove shrink; move it away, or give another -o"
        )


def reproducer_text(op: str, attempt: Attempt, where: TargetDevice, file: str) -> list[str]:
    """Return lines about a reproducer: how and where it fails, and how to run it."""
    of_torch = is_torch_op(op)
    lines = [
        MARK,
        "",
        f"{op}: {VERDICTS[attempt.outcome]} on {where}: {attempt.cause or UNSAID}",
        f"It needs {'torch' if of_torch else 'ttnn, torch'} and pytest.",
        "",
        f"run it with: pytest {file}",
    ]
    if where.board is not None and not of_torch:
        shadow = " --optrove-shadow" if where.device_kind is DeviceKind.SHADOW else ""
        lines.append(f"without a board: pytest {file} --optrove-board {where.board}{shadow}")
    return [*lines, ""]


def _software() -> Iterator[str]:
    yield f"optrove {__version__}"
    yield f"Python {platform.python_version()}"
    yield platform.platform()
    for name in ("ttnn", "torch"):
        yield f"{name} {version_of(name) or 'is not installed'}"


def recorded_case(planned: PlannedJob, names: CallNames) -> RecordedCase:
    """Return a planned case with everything that a generated test needs."""
    if is_torch_op(planned.op):
        return RecordedCase(
            case_id=planned.case_id,
            case=planned.job.case,
            calls=planned.calls,
            outputs=planned.job.outputs,
            raised=planned.raised,
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
        raised=planned.raised,
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
        kept = f", {plural(len(file.values), 'recorded tensor')}" if file.values else ""
        yield Paragraph(f"{path}  {plural(file.cases, 'case')} of {file.op}{kept}")
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
    """Yield the cases without a test by op and reason; those that raised are a section."""
    raised = [each for each in left_out if each.raised]
    others = [each for each in left_out if not each.raised]
    yield from _untested_section(others, "they cannot be written as tests")
    yield from _untested_section(raised, "they raised when they were recorded", f"({_NAME_IT})")


def _untested_section(
    cases: Sequence[UntestableCase], why: str, advice: str = ""
) -> Iterator[Section]:
    groups: defaultdict[tuple[str, str], list[UntestableCase]] = defaultdict(list)
    for each in cases:
        groups[each.op, each.reason].append(each)
    items = []
    for (op, _), some in groups.items():
        such = "such as " if len(some) > 1 else ""
        case = f"{such}case {some[0].case_id[:SHORT_ID]}"
        items.append(Item(len(some), f"{op} ({case}): {some[0].why}"))
    if items:
        title = f"left out, since {why}: {plural(len(cases), 'case')}"
        more = "(--json names each)" if len(groups) < len(cases) else ""
        more = " ".join(filter(None, (more, advice)))
        yield Section(title, (Items(tuple(items), more),))


def tests_data(generated: GeneratedFiles, directory: Path) -> dict[str, Any]:
    """Return the written files; ``docs/command-line.md`` describes the keys."""
    files, left_out = generated.files, generated.left_out
    return {
        "directory": str(directory),
        "files": [
            {
                "file": str(directory / file.name),
                "op": file.op,
                "cases": file.cases,
                "values": str(values_beside(directory / file.name)) if file.values else None,
            }
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
    _check_replaceable(path, program.values)
    return _write(path, program.text, program.values)


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
    yield from paragraphs(f"left out: {each}" for each in program.left_out)


def program_data(program: SequenceProgram, files: Sequence[Path]) -> dict[str, Any]:
    """Return the written program; ``docs/command-line.md`` describes the keys."""
    return {
        "file": str(files[0]),
        "values": str(files[1]) if len(files) > 1 else None,
        "calls": program.calls,
        "left_out": list(program.left_out),
    }
