"""Load sweep modules of tt-metal and execute their vectors."""

from __future__ import annotations

import inspect
import random
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import replace
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, BadTarget, DeviceNotOpened, NotReplayable
from optrove.frameworks.executor import Stage, refuse_inert
from optrove.frameworks.installed import LoadedTables, loaded_tables
from optrove.frameworks.ttnn.board.devices import ALONE, Devices
from optrove.frameworks.ttnn.board.table import BOARDS
from optrove.model.records import DeviceKind, DeviceParameters, Outcome, now
from optrove.replay.judge import error_line, judge_module_error, judge_module_result
from optrove.serializer.build import build
from optrove.serializer.plain import user_converter, user_table
from optrove.settings import environment, is_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

    from optrove.frameworks.executor import OnStage
    from optrove.frameworks.ttnn.board.table import Board
    from optrove.model.records import Attempt, Job
    from optrove.replay.messages import WorkerSetup


SWEEPS: Final = "sweeps"
"""The directory of tt-metal's sweep modules; their dotted names begin below it."""

executing: ContextVar[bool] = ContextVar("executing", default=False)
"""Whether modules are imported to execute existing vectors, not to generate them."""

every_combination: ContextVar[bool] = ContextVar("every_combination", default=False)
"""Whether loaders return every combination of traced values, whatever the module asks for."""

ABSENT: Final = "__ABSENT__"
"""The value of a parameter that a traced configuration does not have, although others have it.
``run`` gets None for it; with ``**kwargs`` also the names of such parameters."""

TRACED_MACHINE: Final = "traced_machine_info"
TRACED_SOURCE: Final = "traced_source"

FACTS: Final = frozenset(
    {
        "device",
        "input_hash",
        "invalid_reason",
        "status",
        "suite_name",
        "sweep_name",
        "tag",
        "timestamp",
        "validity",
        TRACED_MACHINE,
        TRACED_SOURCE,
    }
)
"""Parameters that are facts about a vector: tt-metal's runner does not pass them to ``run``."""

_ABSENT_NAMES: Final = "__absent_keys__"
_FRAMEWORK: Final = Path("tests") / "sweep_framework"


def module_name(file: Path) -> str:
    """Return the name of a module: dotted below a directory ``sweeps``, else that of its file."""
    parts = file.absolute().with_suffix("").parts
    if SWEEPS in parts[:-1]:
        last = len(parts) - 1 - parts[::-1].index(SWEEPS)
        return ".".join(parts[last + 1 :])
    return parts[-1]


def load_module(file: Path) -> ModuleType:
    """Import the file of a sweep module; BadTarget if that fails.

    The module can import its neighbors, the working directory, and its checkout of tt-metal, as
    with tt-metal's own runner.
    """
    file = file.absolute()
    # The name that tt-metal's runner gives it; names of its classes are the same on all machines.
    name = f"{SWEEPS}.{module_name(file)}"
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise BadTarget(f"{file} is not a Python file; name the file of a sweep module")
    module = module_from_spec(spec)
    # Known by its name while it runs, as dataclasses and multiprocessing expect.
    sys.modules[name] = module
    _make_reachable(file)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise BadTarget(
            f"sweep module {file} cannot be imported: {error_line(error)}\n"
            f"{traceback_of(error, file)}"
        ) from error
    _check(module, file)
    return module


def traceback_of(error: BaseException, file: Path) -> str:
    """Return the traceback from the first line of the module itself on."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next((place for place, each in enumerate(frames) if each.filename == str(file)), 0)
    return "".join(traceback.format_list(frames[first:])).rstrip()


def _make_reachable(file: Path) -> None:
    """Let a module import its neighbors and its checkout, now and later."""
    here = Path.cwd()
    roots = [file.parent, here]
    checkout = next((each for each in file.parents if (each / _FRAMEWORK).is_dir()), None)
    if checkout is not None:
        roots = [checkout, checkout / _FRAMEWORK, *roots]
        # Python puts the working directory first; its ``tests`` is not that of the checkout.
        sys.path[:] = [each for each in sys.path if each not in ("", str(here))]
    for root in map(str, roots):
        if root not in sys.path:
            # At the end: installed packages come before the user's files.
            sys.path.append(root)


def _check(module: ModuleType, file: Path) -> None:
    """Raise BadTarget if a file is not a sweep module."""
    parameters: Any = getattr(module, "parameters", None)
    if not isinstance(parameters, Mapping):
        raise BadTarget(
            f"{file} has no dictionary of suites called `parameters`; is it a sweep module?"
        )
    if not callable(getattr(module, "run", None)):
        raise BadTarget(f"{file} has no function `run`; is it a sweep module?")


FIXTURE: Final = "mesh_device_fixture"
_TRACED_MODULE: Final = "_model_traced"


class ModuleExecution:
    """Executes vectors of sweep modules one after another; the last device stays open."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup
        self._modules: dict[str, ModuleType | BadTarget] = {}
        self._tables: dict[str, LoadedTables] = {}
        self._device: _Device | None = None

    def attempt(self, job: Job, case_id: str, on_stage: OnStage) -> Attempt:
        """Return the Attempt at a Job; DeviceNotOpened if this process has no more use."""
        begun = replace(self._setup.not_run(job, case_id), started_at=now())
        try:
            module = self._module(job)
            device = self._opened(module, job, on_stage)
            on_stage(Stage.MAKING)
            arguments = passed_arguments(module, self._arguments(module, job))
        except DeviceNotOpened:
            raise
        except (NotReplayable, BadTarget, BadData) as error:
            return replace(begun, detail=str(error))
        on_stage(Stage.CALLING)
        _seed(job.seed)
        started = time.perf_counter_ns()
        judged = _run(module, {**arguments, "device": device.live}, begun)
        elapsed = time.perf_counter_ns() - started
        device.tidy()
        return replace(judged, duration_ns=elapsed)

    def close(self) -> None:
        """Close the open device."""
        device, self._device = self._device, None
        if device is not None:
            device.close()

    def _module(self, job: Job) -> ModuleType:
        """Return the module of a Job, which is imported once, even if that fails."""
        if job.module is None:
            raise NotReplayable(f"{job.case.op} is a vector, and its module is unknown")
        if job.module not in self._modules:
            token = executing.set(True)
            try:
                self._modules[job.module] = load_module(Path(job.module))
            except BadTarget as error:
                self._modules[job.module] = error
            finally:
                executing.reset(token)
        module = self._modules[job.module]
        if isinstance(module, BadTarget):
            raise module
        return module

    def _opened(self, module: ModuleType, job: Job, on_stage: OnStage) -> _Device:
        mesh = None if job.device is None else job.device.mesh_shape
        board = BOARDS.get(self._setup.board or "")
        if mesh is not None and (board is None or prod(mesh) > board.chips):
            mesh = None  # the module uses the chips that there are
        device = self._device
        if device is None or device.module is not module or device.mesh != mesh:
            self.close()
            on_stage(Stage.OPENING)
            device = self._device = _Device(module, mesh, board, job.device_kind)
        return device

    def _arguments(self, module: ModuleType, job: Job) -> dict[str, Any]:
        named = dict(job.case.arguments)
        if job.module not in self._tables:
            self._tables[str(job.module)] = module_tables(module)
        tables = self._tables[str(job.module)]()
        refuse_inert(named, tables)
        return {name: build(value, tables) for name, value in named.items()}


def _run(module: ModuleType, arguments: dict[str, Any], begun: Attempt) -> Attempt:
    """Call ``run`` and judge its result."""
    try:
        returned = vars(module)["run"](**arguments)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - the border to the user's module, which may raise anything, pytest.skip and sys.exit included; it becomes the Outcome
        judged = judge_module_error(begun, error)
        if judged.outcome in (Outcome.PASSED, Outcome.NOT_RUN):
            return judged
        where = traceback_of(error, Path(str(module.__file__)))
        return replace(judged, detail=f"{judged.detail}\n{where}")
    return judge_module_result(begun, returned)


class _Device:
    """The open device of a module: that of its own fixture, or one chip.

    NotReplayable if the module's fixture fails. While it is open, the environment has what modules
    of tt-metal read from it.
    """

    def __init__(
        self,
        module: ModuleType,
        mesh: tuple[int, ...] | None,
        board: Board | None,
        device_kind: DeviceKind,
    ) -> None:
        self.module = module
        self.mesh = mesh
        self.live: Any = None
        self._fixture: Iterator[Any] | None = None
        self._chip: Devices | None = None
        make = getattr(module, FIXTURE, None)
        with ExitStack() as stack:
            stack.enter_context(environment(_surroundings(module, mesh, board)))
            if make is not None:
                self._fixture, self.live = _by_fixture(module, make)
            elif device_kind is not DeviceKind.HOST:
                self._chip = Devices(import_module("ttnn"))
                self._chip.open(DeviceParameters(mesh_shape=ALONE))
                self.live = self._chip.live
            # From now on it ends with the device.
            self._surroundings = stack.pop_all()

    def tidy(self) -> None:
        """Drop compiled programs if there are many."""
        if self._chip is not None:
            self._chip.tidy()

    def close(self) -> None:
        """Close the device; NotReplayable if the module's fixture fails."""
        self.live = None
        with self._surroundings:
            if self._chip is not None:
                self._chip.close()
            if self._fixture is not None:
                try:
                    next(self._fixture, None)
                except Exception as error:
                    raise NotReplayable(
                        f"{FIXTURE} of {self.module.__file__} failed to close its device: "
                        f"{error_line(error)}"
                    ) from error


def _surroundings(
    module: ModuleType, mesh: tuple[int, ...] | None, board: Board | None
) -> dict[str, str]:
    """Return the variables by which modules of tt-metal choose the device that they open.

    tt-metal's runner has the architecture from its user, and the name of a traced op from its
    command line. Variables that the user has set stay.
    """
    found: dict[str, str] = {}
    if mesh is not None:
        found["MESH_DEVICE_SHAPE"] = "x".join(map(str, mesh))
    if board is not None:
        found["ARCH_NAME"] = board.arch
    _, _, stem = module.__name__.rpartition(".")
    if stem.endswith(_TRACED_MODULE):
        found["TTNN_SWEEP_OP_NAME"] = stem.removesuffix(_TRACED_MODULE)
    return {name: text for name, text in found.items() if not is_set(name)}


def _by_fixture(module: ModuleType, make: Any) -> tuple[Iterator[Any], Any]:
    """Start the fixture of a module; return it and its device."""
    try:
        fixture = iter(make())
        given = next(fixture)
    except (Exception, SystemExit) as error:
        where = traceback_of(error, Path(str(module.__file__)))
        raise DeviceNotOpened(
            f"{FIXTURE} of {module.__file__} could not open a device: {error_line(error)}\n{where}"
        ) from error
    return fixture, given[0] if isinstance(given, (tuple, list)) else given


def passed_arguments(module: ModuleType, vector: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments that ``run`` gets for a vector, besides the device.

    These are the arguments that tt-metal's runner passes: None for absent parameters, whose names
    are one more argument where ``run`` takes any, and no facts about the vector. A fact that
    ``run`` requires is passed.
    """
    parameters = inspect.signature(vars(module)["run"]).parameters
    required = {
        name
        for name, each in parameters.items()
        if name in FACTS and name != "device" and each.default is each.empty
    }
    passed = {name: item for name, item in vector.items() if name not in FACTS or name in required}
    absent = {name for name, item in passed.items() if isinstance(item, str) and item == ABSENT}
    passed |= dict.fromkeys(absent)
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    if takes_any or _ABSENT_NAMES in parameters:
        passed[_ABSENT_NAMES] = absent
    return passed


def takes(module: ModuleType, names: Iterable[str]) -> str | None:
    """Return why ``run`` cannot be called with these keyword arguments; None if it can."""
    passed = passed_arguments(module, dict.fromkeys(names))
    try:
        inspect.signature(vars(module)["run"]).bind(**passed, device=None)
    except TypeError as error:
        return str(error)
    return None


def module_tables(module: ModuleType) -> LoadedTables:
    """Return the converters of the frameworks, and of the classes that a module's values have.

    These are the enums, dataclasses and named tuples in its namespace and in its parameters.
    """
    kinds = [each for each in vars(module).values() if isinstance(each, type)]
    kinds += [type(item) for item in _leaves(vars(module)["parameters"])]
    found: dict[str, type] = {}
    for kind in kinds:
        for each in (kind, *(one for one in vars(kind).values() if isinstance(one, type))):
            converter = None if each.__module__ in sys.stdlib_module_names else user_converter(each)
            if converter is not None:
                found.setdefault(converter.name, each)
    known = loaded_tables()
    own = [
        kind
        for name, kind in found.items()
        if name not in known.by_name and kind not in known.by_type
    ]
    return LoadedTables(user_table(own))


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the objects in nested lists, tuples and dictionaries."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if type(value) in (list, tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _seed(seed: int) -> None:
    """Seed the random numbers of every library in use."""
    random.seed(seed)
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None:
        torch.manual_seed(seed)
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
