"""Write tests of recorded cases: choose them from a trove, generate their files, put them down."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from optrove.errors import NotReplayable, UnusableResults
from optrove.frameworks.ttnn.board.table import BOARDS
from optrove.frameworks.ttnn.execute.call_names import CallNames
from optrove.frameworks.ttnn.execute.files import place_of_file
from optrove.frameworks.value_domains import way_to_draw
from optrove.model.values import TensorSpec, walk
from optrove.replay.jobs import device_of
from optrove.replay.planning import How, planned_cases
from optrove.report.tables import plural
from optrove.serializer.hashes import placement_hash
from optrove.testgen.cases import Filling, Numbers, Recorded
from optrove.testgen.files import MARK, generate
from optrove.trove.query import select

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from optrove.model.case import Case
    from optrove.model.records import DeviceParameters
    from optrove.replay.planning import Planned
    from optrove.testgen.cases import Generated, LeftOut
    from optrove.trove.query import Asked
    from optrove.trove.reader import TroveReader

_INTEGERS: Final = re.compile(r"\.u?int\d+$|\.bool$")
_USUAL_AXES: Final = {"ROW": "wormhole_b0", "COL": "blackhole"}


@dataclass(frozen=True, slots=True)
class Written:
    """What was generated, and where it was put."""

    directory: Path
    generated: Generated


def tests_of(
    reader: TroveReader, names: Iterable[str], asked: Asked, limit: int | None
) -> list[Recorded]:
    """Return the cases that were asked for by the names of ops or cases, each once."""
    found: dict[str, Recorded] = {}
    call_names = CallNames()
    for name in names:
        for answer in select(reader, replace(asked, name=name)):
            for planned in islice(planned_cases(reader, answer.query, How()), limit):
                found.setdefault(planned.case_id, recorded_of(planned, call_names))
    return list(found.values())


def write_tests(cases: Iterable[Recorded], directory: Path, *, standalone: bool) -> Written:
    """Generate the files that test some cases, and put them into a directory."""
    generated = generate(cases, standalone=standalone)
    if not generated.files:
        raise NotReplayable(_nothing_to_write(generated.left_out))
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
    return Written(directory, generated)


def _nothing_to_write(left_out: Sequence[LeftOut]) -> str:
    first = left_out[0]
    many = f"any of {plural(len(left_out), 'case')}, such as " if len(left_out) > 1 else ""
    case = f"case {first.case_id[:12]} of {first.op}"
    return f"no test can be written of {many}{case}: {first.path}: {first.reason}"


def reproducer(planned: Planned, case: Case, directory: Path, board: str | None) -> Written:
    """Write the standalone file of a case that was derived from a recorded one.

    ``board`` is the mock board on which it fails, if it is a mock one.
    """
    job = replace(planned.job, case=case, outputs=None)
    derived = replace(planned, job=job, case_id=placement_hash(case), calls=None)
    recorded = recorded_of(derived, CallNames())
    failing = replace(recorded, board=board or recorded.board)
    return write_tests([failing], directory, standalone=True)


def _check_replaceable(path: Path) -> None:
    """Raise UnusableResults where a file is that somebody else has written."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise UnusableResults(f"{path} cannot be replaced: {error}; give another -o") from error
    if MARK not in text:
        raise UnusableResults(
            f"{path} is there already and was not made by optrove testgen; "
            f"move it away, or give another directory with -o"
        )


def recorded_of(planned: Planned, names: CallNames) -> Recorded:
    """Return a planned case with all that a generated test needs to know."""
    called = names.written(planned.job.case)
    roles = dict(called.roles)
    return Recorded(
        case_id=planned.case_id,
        case=called.case,
        calls=planned.calls,
        outputs=planned.job.outputs,
        device=_device(planned),
        places=called.places,
        roles=called.roles,
        fillings=_fillings(called.case, roles),
        notes=called.notes,
        board=_board(planned),
        file=place_of_file(called.case),
    )


def _device(planned: Planned) -> DeviceParameters:
    """Return with what the device is opened; the usual dispatch axis goes without saying."""
    device = device_of(planned.job)
    board = BOARDS.get(planned.board or "")
    usual = _USUAL_AXES.get(device.dispatch_axis or "")
    if board is None or usual == board.arch:
        return replace(device, dispatch_axis=None)
    return device


def _board(planned: Planned) -> str | None:
    """Return a mock board for a case: the recorded one, or the smallest that has its mesh."""
    if planned.board in BOARDS:
        return planned.board
    shape = device_of(planned.job).mesh_shape or (1, 1)
    fitting = [board for board in BOARDS.values() if shape in board.mesh_shapes]
    return min(fitting, key=lambda board: board.chips).name if fitting else None


def _fillings(case: Case, roles: dict[str, str]) -> tuple[Filling, ...]:
    arguments = {roles.get(name, name): value for name, value in case.arguments}
    found = []
    for name, value in case.arguments:
        specs = [part for _, part in walk(value) if isinstance(part, TensorSpec)]
        if not specs:
            continue
        integers = bool(_INTEGERS.search(specs[0].dtype))
        draw, below = way_to_draw(roles.get(name, name), arguments, integers=integers)
        found.append(Filling(name, Numbers(getattr(draw, "__name__", "normal")), max(1, below)))
    return tuple(found)
