"""Choose recorded cases from a trove, generate tests of them, and write the files."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from optrove.errors import NotReplayable, UnusableResults
from optrove.frameworks.input_values import way_to_draw
from optrove.frameworks.ttnn.board.table import BOARDS
from optrove.frameworks.ttnn.execute.files import place_of_file
from optrove.frameworks.ttnn.execute.invoking import CallNames
from optrove.model.values import TensorSpec, walk
from optrove.replay.device_choice import device_parameters
from optrove.replay.planning import planned_cases
from optrove.report.wording import SHORT_ID, plural
from optrove.serializer.hashes import placement_hash
from optrove.testgen.cases import DrawnValues, Filling, RecordedCase
from optrove.testgen.files import INTEGER, MARK, generate
from optrove.trove.query import select

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from optrove.model.case import Case
    from optrove.replay.planning import PlannedJob
    from optrove.testgen.files import GeneratedFiles
    from optrove.trove.query import CaseFilters
    from optrove.trove.reader import TroveReader

_DEFAULT_AXES: Final = {"ROW": "wormhole_b0", "COL": "blackhole"}


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
        raise NotReplayable(f"no test can be written of {many}{case}: {first.path}: {first.reason}")
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
    if planned.op.startswith("torch."):
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
        specs = [part for _, part in walk(value) if isinstance(part, TensorSpec)]
        if specs:
            integers = bool(INTEGER.search(specs[0].dtype))
            draw, below = way_to_draw(roles.get(name, name), arguments, integers=integers)
            numbers = DrawnValues(getattr(draw, "__name__", "normal"))
            found[name] = Filling(numbers, max(1, below))
    return found
