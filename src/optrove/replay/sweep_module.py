"""Load sweep modules of tt-metal and execute their vectors."""

from __future__ import annotations

import inspect
import random
import sys
import time
import traceback
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import replace
from hashlib import sha256
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, BadTarget, NotReplayable
from optrove.frameworks.executor import Stage, refuse_inert
from optrove.frameworks.installed import LoadedTables
from optrove.frameworks.ttnn.board.devices import ALONE, Devices
from optrove.model.records import DeviceKind, DeviceParameters, Outcome, now
from optrove.replay.judge import error_line, judge_module_error, judge_module_result
from optrove.serializer.build import build

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from optrove.frameworks.executor import Telling
    from optrove.model.records import Attempt, Job
    from optrove.replay.messages import WorkerSetup


SWEEPS: Final = "sweeps"
"""The directory of tt-metal's sweep modules; their dotted names begin below it."""

executing: ContextVar[bool] = ContextVar("executing", default=False)
"""Whether modules are imported to execute existing vectors, not to generate them."""

every_combination: ContextVar[bool] = ContextVar("every_combination", default=False)
"""Whether loaders return every combination of traced values, whatever the module asks for."""

_FRAMEWORK: Final = Path("tests") / "sweep_framework"
_LOADED: Final = "optrove_sweep_module_"


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
    name = _LOADED + sha256(str(file).encode()).hexdigest()[:16]
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
    roots = [file.parent, Path.cwd()]
    for directory in file.parents:
        if (directory / _FRAMEWORK).is_dir():
            roots += [directory, directory / _FRAMEWORK]
            break
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


class ModuleExecution:
    """Executes vectors of sweep modules one after another; the last device stays open."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup
        self._tables = LoadedTables()
        self._modules: dict[str, ModuleType | BadTarget] = {}
        self._device: _Device | None = None

    def attempt(self, job: Job, case_id: str, tell: Telling) -> Attempt:
        """Return the Attempt at a Job; never raises for what a module can cause."""
        begun = replace(self._setup.not_run(job, case_id), started_at=now())
        try:
            module = self._module(job)
            device = self._opened(module, job, tell)
            tell(Stage.MAKING)
            arguments = self._arguments(job)
        except (NotReplayable, BadTarget, BadData) as error:
            return replace(begun, detail=str(error))
        tell(Stage.CALLING)
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

    def _opened(self, module: ModuleType, job: Job, tell: Telling) -> _Device:
        if self._device is not None and self._device.module is module:
            return self._device
        self.close()
        tell(Stage.OPENING)
        self._device = _open(module, job.device_kind)
        return self._device

    def _arguments(self, job: Job) -> dict[str, Any]:
        named = dict(job.case.arguments)
        tables = self._tables()
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
    """The open device of a module: that of its own fixture, or one chip."""

    def __init__(
        self, module: ModuleType, live: Any, *, fixture: Iterator[Any] | None, chip: Devices | None
    ) -> None:
        self.module = module
        self.live = live
        self._fixture = fixture
        self._chip = chip

    def tidy(self) -> None:
        """Drop compiled programs if there are many."""
        if self._chip is not None:
            self._chip.tidy()

    def close(self) -> None:
        """Close the device; NotReplayable if the module's fixture fails."""
        self.live = None
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


def _open(module: ModuleType, device_kind: DeviceKind) -> _Device:
    """Open the device of a module; NotReplayable if that fails."""
    make = getattr(module, FIXTURE, None)
    if make is not None:
        fixture, live = _by_fixture(module, make)
        return _Device(module, live, fixture=fixture, chip=None)
    if device_kind is DeviceKind.HOST:
        return _Device(module, None, fixture=None, chip=None)
    chip = Devices(import_module("ttnn"))
    chip.open(DeviceParameters(mesh_shape=ALONE))
    return _Device(module, chip.live, fixture=None, chip=chip)


def _by_fixture(module: ModuleType, make: Any) -> tuple[Iterator[Any], Any]:
    """Start the fixture of a module; return it and its device."""
    try:
        fixture = iter(make())
        given = next(fixture)
    except (Exception, SystemExit) as error:
        where = traceback_of(error, Path(str(module.__file__)))
        raise NotReplayable(
            f"{FIXTURE} of {module.__file__} could not open a device: {error_line(error)}\n{where}"
        ) from error
    return fixture, given[0] if isinstance(given, (tuple, list)) else given


def takes(module: ModuleType, names: set[str]) -> str | None:
    """Return why ``run`` cannot be called with these keyword arguments; None if it can."""
    run = vars(module)["run"]
    try:
        inspect.signature(run).bind(**dict.fromkeys(names), device=None)
    except TypeError as error:
        return str(error)
    return None


def _seed(seed: int) -> None:
    """Seed the random numbers of every library in use."""
    random.seed(seed)
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None:
        torch.manual_seed(seed)
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
