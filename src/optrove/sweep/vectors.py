"""Sweep plans, and the vectors of sweep modules and of recorded ops."""

from __future__ import annotations

import json
import random
import re
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
from optrove.interop.machines import board_of
from optrove.model.case import Case
from optrove.model.ops import VECTORS
from optrove.model.records import Counts, DeviceKind, DeviceParameters, Job, Sweep, SweepModule
from optrove.model.trove import Machine
from optrove.model.values import Text
from optrove.replay.device_choice import (
    TargetDevice,
    device_parameters,
    has_board,
    resolve_device,
)
from optrove.replay.planning import PlannedJob, planned_cases
from optrove.replay.sweep_module import SWEEPS, TRACED_MACHINE
from optrove.replay.workers import describe_exit
from optrove.serializer.hashes import placement_hash
from optrove.serializer.wire import decode
from optrove.settings import BOARD, STORE, environment
from optrove.sweep.traced import combinations, read_name
from optrove.sweep.tt_metal_json import write_value
from optrove.trove.query import select

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from optrove.trove.query import CaseFilters
    from optrove.trove.reader import TroveReader

_DIRECTORIES: Final = (Path(SWEEPS), Path("tests") / "sweep_framework" / SWEEPS)
_DEFAULT_BOARD: Final = next(iter(BOARDS))
_NOT_IN_FILE_NAMES: Final = re.compile(r"[^\w.+-]+")
_NS: Final = 1e9


@dataclass(frozen=True, slots=True)
class VectorGroup:
    """Vectors that were recorded on the same board and mesh.

    ``hardware`` is None where the board is unknown, ``mesh`` for a single chip. ``file`` is the
    vector file of the group, once it is exported.
    """

    hardware: str | None
    mesh: tuple[int, ...] | None
    vectors: tuple[PlannedJob, ...]
    file: Path | None = None

    @property
    def mesh_text(self) -> str | None:
        """The mesh in the form ``4x8``."""
        return None if self.mesh is None else "x".join(map(str, self.mesh))

    @property
    def suffix(self) -> str:
        """The end of the name of the group's file: ``.hw_galaxy.mesh_4x8``."""
        hardware = "" if self.hardware is None else f".hw_{self.hardware}"
        mesh = "" if self.mesh is None else f".mesh_{self.mesh_text}"
        return file_stem(hardware + mesh)


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The vectors of a sweep in order, and the counts of those left out by reason.

    ``where`` is the device of each vector by its case id; vectors that are listed or exported only
    need none. ``notes`` are lines for the user.
    """

    vectors: tuple[PlannedJob, ...] = ()
    left_out: Counts = ()
    modules: tuple[SweepModule, ...] = ()
    where: Mapping[str, TargetDevice] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[VectorGroup, ...]:
        """The vectors by the board and mesh on which they were recorded, largest group first."""
        return grouped_by_hardware(self.vectors)


def grouped_by_hardware(
    vectors: Iterable[PlannedJob], *, by_board: bool = True
) -> tuple[VectorGroup, ...]:
    """Return vectors by the board and mesh on which they were recorded, largest group first.

    Without ``by_board`` only the mesh counts.
    """
    found: dict[tuple[str | None, tuple[int, ...] | None], list[PlannedJob]] = {}
    for each in vectors:
        mesh = vector_mesh(each)
        several = mesh is not None and any(size != 1 for size in mesh)
        key = (each.board if by_board else None, mesh if several else None)
        found.setdefault(key, []).append(each)
    groups = [VectorGroup(*key, tuple(members)) for key, members in found.items()]
    return tuple(sorted(groups, key=lambda group: (-len(group.vectors), group.suffix)))


def vector_mesh(planned: PlannedJob) -> tuple[int, ...] | None:
    """Return the mesh of a vector's device, or the one that its traced configuration states."""
    mesh = device_parameters(planned.job).mesh_shape
    if mesh is not None:
        return mesh
    value = dict(planned.job.case.arguments).get("traced_config_name")
    if planned.suite is None or not isinstance(value, Text):
        return None
    try:
        traced = read_name(value.value)
    except NotFound:  # the module makes names of its own
        return None
    return next((tensor.mesh for tensor in traced.tensors if tensor.mesh is not None), None)


def file_stem(name: str) -> str:
    """Return the name of a module or op as a part of a file name."""
    return _NOT_IN_FILE_NAMES.sub("_", name)


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file's content."""
    return sha256(file.read_bytes()).hexdigest()


def shuffled(plan: SweepPlan, seed: int | None) -> SweepPlan:
    """Return a plan in the order that a seed gives; the same plan without a seed."""
    if seed is None:
        return plan
    vectors = list(plan.vectors)
    random.Random(seed).shuffle(vectors)  # noqa: S311 - an order, not a secret
    return replace(plan, vectors=tuple(vectors))


def joined(parts: Sequence[SweepPlan]) -> SweepPlan:
    """Return several plans as one, in which every case is once."""
    vectors: dict[str, PlannedJob] = {}
    left_out: dict[str, int] = {}
    for part in parts:
        before = len(vectors)
        for each in part.vectors:
            vectors.setdefault(each.case_id, each)
        repeated = len(part.vectors) - (len(vectors) - before)
        for reason, count in (("the same as another", repeated), *part.left_out):
            if count:
                left_out[reason] = left_out.get(reason, 0) + count
    modules = (
        replace(module, timeout_ns=part.vectors[0].job.timeout_ns)
        for part in parts
        for module in part.modules
        if part.vectors
    )
    return SweepPlan(
        tuple(vectors.values()),
        tuple(left_out.items()),
        tuple(dict.fromkeys(modules)),
        {case_id: where for part in parts for case_id, where in part.where.items()},
        tuple(note for part in parts for note in part.notes),
    )


def module_file(target: str) -> Path | None:
    """Return the file of the sweep module that a target names; None if it names no module.

    A target is a Python file, or a dotted name below ``sweeps`` or ``tests/sweep_framework/sweeps``
    in the working directory or above it. BadTarget for a file that does not exist.
    """
    path = Path(target).expanduser()
    if path.suffix == ".py" or (path.is_file() and "/" in target):
        if not path.is_file():
            raise BadTarget(f"there is no file {target!r}; name a sweep module, or an op")
        return path.absolute()
    if not target.isprintable():
        return None
    named = Path(*target.split(".")).with_suffix(".py")
    here = Path.cwd()
    candidates = (
        directory / sweeps / named for directory in (here, *here.parents) for sweeps in _DIRECTORIES
    )
    return next((file for file in candidates if file.is_file()), None)


@dataclass(frozen=True, slots=True)
class VectorRequest:
    """How the vectors of a module are made.

    ``store`` is the trove of the module's own loaders, which give every combination of traced
    values with ``all_cases``. ``limit`` is the size of a sample, which ``seed`` chooses. ``file``
    has the vectors instead of the module; it is one of tt-metal's sweep framework.
    """

    store: str | None = None
    all_cases: bool = False
    limit: int | None = None
    seed: int = 0
    file: Path | None = None


def module_vectors(file: Path, sweep: Sweep, request: VectorRequest | None = None) -> SweepPlan:
    """Make the vectors of a module in a process of its own, for the device that ``sweep`` names.

    BadTarget names the module if it fails, NotFound if it has no vectors.
    """
    request = request or VectorRequest()
    where = module_device(sweep.device_kind, sweep.board)
    path = str(file.absolute())
    made = _generated(path, sweep.suite, where.board, request)
    timeout_ns = sweep.timeout_ns
    if timeout_ns is None and made["timeout"] is not None:
        timeout_ns = round(made["timeout"] * _NS)
    arguments = [(name, decode(json.loads(text))) for name, text in made["arguments"]]
    vectors = tuple(
        planned_vector(
            case_id,
            suite,
            Job(
                case=Case(
                    f"{VECTORS}{made['name']}.{suite}",
                    tuple(arguments[number] for number in numbers),
                ),
                device_kind=where.device_kind,
                seed=sweep.seed,
                timeout_ns=timeout_ns,
                module=path,
            ),
        )
        for suite, case_id, numbers in made["vectors"]
    )
    left_out = tuple(sorted(made["left_out"].items()))
    if not vectors:
        reasons = [*(f"{count:,} {reason}" for reason, count in left_out), *made["notes"]]
        suite = f"suite {sweep.suite!r} of " if sweep.suite else ""
        raise NotFound(
            f"there are no vectors in {suite}{request.file or file}: "
            f"{'; '.join(reasons) or 'it has no suites'}"
        )
    is_free = (sweep.board or BOARD.value) is None
    return SweepPlan(
        vectors,
        left_out,
        (SweepModule(made["name"], path, file_digest(file)),),
        {each.case_id: fitting_board(where, each) if is_free else where for each in vectors},
        tuple(made["notes"]),
    )


def planned_vector(case_id: str, suite: str | None, job: Job) -> PlannedJob:
    """Return a vector with the board and the mesh on which it was traced, if it says so."""
    machine = traced_machine(job.case)
    board = None if machine is None else board_of(machine)
    mesh = None if machine is None else machine.mesh_device_shape
    if mesh is not None:
        job = replace(job, device=DeviceParameters(mesh_shape=mesh))
    return PlannedJob(job, case_id, board=board, suite=suite)


def traced_machine(case: Case) -> Machine | None:
    """Return the machine on which a vector of a traced module was traced; None without one."""
    value = dict(case.arguments).get(TRACED_MACHINE)
    try:
        data = None if value is None else write_value(value)
    except ValueError:  # the module has another parameter of that name
        return None
    entries = data if isinstance(data, list) else [data]
    return next((Machine.of(each) for each in entries if isinstance(each, dict)), None)


def _generated(
    file: str, suite: str | None, board: str | None, request: VectorRequest
) -> dict[str, Any]:
    """Run ``optrove.sweep.generating`` in a process, and return the content of its output file."""
    given = {
        "--suite": suite,
        "--board": board,
        "--limit": request.limit,
        "--seed": request.seed,
        "--vectors": request.file,
    }
    options = [f"{name}={value}" for name, value in given.items() if value is not None]
    options += ["--all-cases"] if request.all_cases else []
    store = request.store
    with tempfile.TemporaryDirectory(prefix="optrove-vectors-") as directory:
        output = Path(directory) / "vectors.json"
        command = [sys.executable, "-m", "optrove.sweep.generating", file, str(output), *options]
        # The module's loaders read the trove of this command.
        with environment({} if store is None else {STORE.name: store}):
            # Output of the module is talk, and goes to stderr.
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=2, check=False)  # noqa: S603 - this interpreter
        if not output.exists():
            raise BadTarget(
                f"the process that imported sweep module {file} ended with "
                f"{describe_exit(done.returncode)}; see its output above. "
                f"Does it run with plain Python?"
            )
        made: dict[str, Any] = json.loads(output.read_text(encoding="ascii"))
    if "error" in made:
        raise BadTarget(made["error"])
    return made


def module_device(kind: DeviceKind | None, board: str | None) -> TargetDevice:
    """Return the device on which a module runs; by default one that computes numbers."""
    if not is_importable("ttnn") and kind is None and board is None:
        return TargetDevice(DeviceKind.HOST, reason="ttnn is not installed")
    resolved, named = resolve_device(kind, board)
    if resolved is DeviceKind.HARDWARE:
        return TargetDevice(DeviceKind.HARDWARE)
    if kind is None and (board or BOARD.value) is None and has_board():
        return TargetDevice(DeviceKind.HARDWARE, reason="this machine has a board")
    board = named or _DEFAULT_BOARD
    if kind is not None:
        return TargetDevice(kind, board)
    if is_importable("torch"):
        return TargetDevice(DeviceKind.SHADOW, board, "modules judge numbers")
    return TargetDevice(DeviceKind.MOCK, board, "without torch there are no numbers to judge")


def fitting_board(where: TargetDevice, vector: PlannedJob) -> TargetDevice:
    """Return the mock board on which a vector was traced, or the smallest with as many chips."""
    chips = prod(vector_mesh(vector) or (1,))
    if where.board is None or (vector.board is None and chips == 1):
        return where
    if vector.board in BOARDS and BOARDS[vector.board].chips >= chips:
        return replace(where, board=vector.board, reason="the board on which they were traced")
    board = next((name for name, board in BOARDS.items() if board.chips >= chips), None)
    if board is None:
        return where
    return replace(
        where, board=board, reason=f"the smallest board with {chips} chips, as was traced"
    )


def op_vectors(
    reader: TroveReader, asked: CaseFilters, request: VectorRequest | None = None
) -> SweepPlan:
    """Return the recorded cases of ops, or every combination of their specs with ``all_cases``.

    NotFound if the trove has none; BadTarget for too many combinations without a ``limit``.
    """
    request = request or VectorRequest()
    answers = select(reader, asked)
    recorded = [each for one in answers for each in planned_cases(reader, one.query)]
    if not request.all_cases:
        return SweepPlan(tuple(recorded))
    vectors: list[PlannedJob] = []
    notes: list[str] = []
    for answer in answers:
        own = [each for each in recorded if each.op == answer.op]
        found, cases = combinations(
            answer.op, [each.job.case for each in own], limit=request.limit, seed=request.seed
        )
        notes.append(f"{found}, {len(cases):,} combinations")
        base = own[0]
        for case in cases:
            job = replace(base.job, case=case, outputs=None)
            vectors.append(PlannedJob(job, placement_hash(case), board=base.board))
    return SweepPlan(tuple(vectors), notes=tuple(notes))
