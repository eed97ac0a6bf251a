"""Make the vectors of sweep modules and of recorded ops, and group them by what they need."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadTarget, NotFound
from optrove.frameworks.installed import is_importable
from optrove.frameworks.ttnn.board.table import BOARDS
from optrove.model.records import DeviceKind, Job, SweepModule
from optrove.model.values import Text
from optrove.replay.device_choice import Where, has_board, settled
from optrove.replay.jobs import device_of
from optrove.replay.planning import How, Planned, planned_cases, timeout_ns
from optrove.replay.sweep_module import SWEEPS
from optrove.replay.workers import ending
from optrove.serializer.described import case_of
from optrove.serializer.hashes import placement_hash
from optrove.settings import STORE, environment, read_settings
from optrove.sweep import grouping as schedule
from optrove.sweep.grouping import Needs, grouped
from optrove.sweep.permutations import combinations
from optrove.sweep.traced import read_name
from optrove.trove.query import select

if TYPE_CHECKING:
    from optrove.model.records import Counts
    from optrove.sweep.grouping import Group
    from optrove.trove.query import Asked
    from optrove.trove.reader import TroveReader

_PLACES: Final = (Path(SWEEPS), Path("tests") / "sweep_framework" / SWEEPS)
_NUMBERS: Final = "modules judge numbers"
_NO_NUMBERS: Final = "without torch there are no numbers to judge"
_USUAL_BOARD: Final = next(iter(BOARDS))
_TRACED_NAME: Final = "traced_config_name"


@dataclass(frozen=True, slots=True)
class ModuleRequest:
    """Which vectors of a module are wanted, and on what they are to run.

    ``device`` and ``board`` are what the user gave; ``store`` is the trove that the module's own
    loaders use, ``randomize`` the seed of another order. With ``all_cases`` the loaders give every
    combination of traced values.
    """

    file: Path
    suite: str | None = None
    device: str | None = None
    board: str | None = None
    store: str | None = None
    how: How = field(default_factory=How)
    randomize: int | None = None
    all_cases: bool = False


@dataclass(frozen=True, slots=True)
class VectorSet:
    """Vectors, and what was left out: all permutations are in the one or counted in the other.

    ``where`` is on what a module's vectors are to run; ``notes`` are lines to be told.
    """

    planned: tuple[Planned, ...]
    left_out: Counts = ()
    module: SweepModule | None = None
    where: Where | None = None
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[Group[Planned], ...]:
        """The vectors by the hardware and mesh that they were traced on."""
        return grouped(self.planned, needs_of)


def module_file(target: str) -> Path | None:
    """Return the file of the sweep module that is meant; None if no module is.

    That is a file of Python, or a dotted name below ``sweeps`` or ``tests/sweep_framework/sweeps``
    here or above. BadTarget for a file that is not there.
    """
    path = Path(target).expanduser()
    if path.suffix == ".py" or (path.is_file() and "/" in target):
        if not path.is_file():
            raise BadTarget(f"there is no file {target!r}; name a sweep module, or an op")
        return path.absolute()
    named = Path(*target.split(".")).with_suffix(".py") if target.isprintable() else None
    here = Path.cwd()
    for directory in (here, *here.parents):
        for place in _PLACES if named is not None else ():
            if named is not None and (directory / place / named).is_file():
                return directory / place / named
    return None


def vectors_of(request: ModuleRequest) -> VectorSet:
    """Make the vectors of a module, in a process of its own; BadTarget names it if that fails."""
    where = place_for_module(request.device, request.board)
    told = _generated(request, where)
    path = str(request.file.absolute())
    module = SweepModule(told["name"], path, file_digest(request.file))
    timeout = request.how.timeout or told["timeout"]
    how = replace(request.how, timeout=timeout)
    planned = [
        Planned(_job(content, path, where, how), case_id, suite=suite)
        for suite, case_id, content in told["vectors"]
    ]
    left_out = tuple(sorted(told["left_out"].items()))
    found = VectorSet(tuple(planned), left_out, module, where, tuple(told["notes"]))
    if not planned:
        raise NotFound(_nothing(request, found))
    if (request.board or read_settings().board) is None:
        found = replace(found, where=_large_enough(where, found))
    return shuffled(found, request.randomize)


def _large_enough(where: Where, vectors: VectorSet) -> Where:
    """Return where vectors can run that were traced on a mesh, if nobody has chosen a board."""
    chips = max(prod(group.needs.mesh or (1,)) for group in vectors.groups)
    board = next((name for name, board in BOARDS.items() if board.chips >= chips), None)
    if board is None or where.board is None or chips == 1:
        return where
    return replace(where, board=board, why=f"the smallest that has {chips} chips, as was traced")


def op_vectors(
    reader: TroveReader, asked: Asked, how: How, *, all_cases: bool = False
) -> VectorSet:
    """Return the recorded cases of the ops that are meant, or every combination of their specs.

    NotFound if there are none; BadTarget for more combinations than a suite may have.
    """
    answers = select(reader, asked)
    planned = [each for one in answers for each in planned_cases(reader, one.query, how)]
    if not all_cases:
        return VectorSet(tuple(planned))
    found: list[Planned] = []
    notes: list[str] = []
    for answer in answers:
        cases = [each for each in planned if each.op == answer.op]
        combined = combinations(answer.op, [each.job.case for each in cases])
        notes.append(f"{combined.of}, {len(combined.cases):,} combinations")
        base = cases[0]
        for case in combined.cases:
            job = replace(base.job, case=case, outputs=None)
            found.append(Planned(job, placement_hash(case), board=base.board))
    return VectorSet(tuple(found), notes=tuple(notes))


def place_for_module(device: str | None, board: str | None) -> Where:
    """Return on what a module runs: as asked, else with numbers, since it judges them itself."""
    if not is_importable("ttnn") and device is None and board is None:
        return Where(DeviceKind.HOST, why="ttnn is not installed")
    choice = settled(device, board)
    if choice.device_kind is DeviceKind.HARDWARE:
        return Where(DeviceKind.HARDWARE)
    asked = board or read_settings().board
    if device is None and asked is None and has_board():
        return Where(DeviceKind.HARDWARE, why="a board is here, and no other was asked for")
    kind, why = choice.device_kind or DeviceKind.SHADOW, None
    if device is None:
        numbers = is_importable("torch")
        kind = DeviceKind.SHADOW if numbers else DeviceKind.MOCK
        why = _NUMBERS if numbers else _NO_NUMBERS
    return Where(kind, choice.board or _USUAL_BOARD, why)


def shuffled(vectors: VectorSet, seed: int | None) -> VectorSet:
    """Return the vectors in the order that a seed gives; the same without one."""
    if seed is None:
        return vectors
    return replace(vectors, planned=tuple(schedule.shuffled(vectors.planned, seed)))


def needs_of(planned: Planned) -> Needs:
    """Return the board and mesh that a vector was traced on; one chip of any board is none."""
    mesh = device_of(planned.job).mesh_shape or _traced_mesh(planned)
    several = mesh is not None and any(size != 1 for size in mesh)
    return Needs(planned.board, mesh if several else None)


def _traced_mesh(planned: Planned) -> tuple[int, ...] | None:
    """Return the mesh that the name of a traced configuration tells."""
    value = dict(planned.job.case.arguments).get(_TRACED_NAME)
    if planned.suite is None or not isinstance(value, Text):
        return None
    try:
        traced = read_name(value.value)
    except NotFound:  # names of the module's own making
        return None
    return next((tensor.mesh for tensor in traced.tensors if tensor.mesh is not None), None)


def _job(content: str, path: str, where: Where, how: How) -> Job:
    return Job(
        case=case_of(content),
        device_kind=where.device_kind,
        seed=how.seed,
        timeout_ns=timeout_ns(how),
        module=path,
    )


def file_digest(file: Path) -> str:
    """Return the SHA-256 of what a file holds."""
    return sha256(file.read_bytes()).hexdigest()


def _nothing(request: ModuleRequest, found: VectorSet) -> str:
    reasons = "; ".join(f"{count:,} {reason}" for reason, count in found.left_out)
    told = "; ".join(filter(None, (reasons, *found.notes)))
    which = f"suite {request.suite!r} of " if request.suite else ""
    return f"there is not a single vector in {which}{request.file}: {told or 'it has no suites'}"


def _generated(request: ModuleRequest, where: Where) -> dict[str, Any]:
    """Have a process import the module; return what it wrote down."""
    with tempfile.TemporaryDirectory(prefix="optrove-vectors-") as directory:
        output = Path(directory) / "vectors.json"
        words = [sys.executable, "-m", "optrove.sweep.generating"]
        words += [str(request.file.absolute()), str(output)]
        words += [] if request.suite is None else [f"--suite={request.suite}"]
        words += [] if where.board is None else [f"--board={where.board}"]
        words += ["--all-cases"] if request.all_cases else []
        # The module's loaders find the trove where this command was told that it is.
        with environment({} if request.store is None else {STORE.name: request.store}):
            # What the module prints is talk, and goes where talk goes.
            done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=2, check=False)  # noqa: S603 - this interpreter
        if not output.exists():
            raise BadTarget(
                f"the process that imported sweep module {request.file} ended with "
                f"{ending(done.returncode)}; what it said is above. Does it run with plain Python?"
            )
        told: dict[str, Any] = json.loads(output.read_text(encoding="ascii"))
    if "error" in told:
        raise BadTarget(told["error"])
    return told
