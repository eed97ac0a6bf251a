"""Execute the vectors of sweep modules: load the module, open its device once, call its ``run``."""

from __future__ import annotations

import inspect
import random
import sys
import time
from dataclasses import replace
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.backends.build import build
from optrove.backends.executing import Stage, refuse_inert
from optrove.backends.frameworks import LoadedTables
from optrove.backends.ttnn.devices import ALONE, Devices
from optrove.errors import BadData, BadTarget, NotReplayable
from optrove.model.records import Attempt, DeviceKind, DeviceParameters, Outcome
from optrove.run.module_loading import executing, load_module, told, traceback_of
from optrove.run.module_verdicts import judge_raised, judge_returned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from optrove.backends.executing import Telling
    from optrove.model.records import Job
    from optrove.run.module_verdicts import Verdict

FIXTURE: Final = "mesh_device_fixture"


class ModuleExecution:
    """Executes Jobs of sweep modules one after another; the device of the last one stays open."""

    def __init__(self, run_id: str, board: str | None) -> None:
        self._run_id = run_id
        self._board = board
        self._tables = LoadedTables()
        self._modules: dict[str, ModuleType | BadTarget] = {}
        self._device: _Device | None = None

    def attempt(self, job: Job, case_id: str, tell: Telling) -> Attempt:
        """Return what came of a Job; never raises for what a module can bring about."""
        begun = Attempt(
            run_id=self._run_id,
            case_id=case_id,
            outcome=Outcome.NOT_RUN,
            device_kind=job.device_kind,
            seed=job.seed,
            board=self._board,
            started_at=f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%S.%f}Z",
        )
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
        verdict = _verdict(module, {**arguments, "device": device.live}, job)
        elapsed = time.perf_counter_ns() - started
        device.tidy()
        return replace(
            begun,
            outcome=verdict.outcome,
            detail=verdict.detail,
            measurements=verdict.measurements,
            notes=verdict.notes,
            duration_ns=elapsed,
        )

    def close(self) -> None:
        """Close the device that is open."""
        device, self._device = self._device, None
        if device is not None:
            device.close()

    def _module(self, job: Job) -> ModuleType:
        """Return the module of a Job; it is imported once, and fails once if it does."""
        if job.module is None:
            raise NotReplayable(f"{job.case.op} is a vector, and its module was not told")
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


def _verdict(module: ModuleType, arguments: dict[str, Any], job: Job) -> Verdict:
    """Call ``run`` and judge what comes of it."""
    try:
        returned = vars(module)["run"](**arguments)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - the border to the user's module, which may raise anything, pytest.skip and sys.exit included; it becomes the Outcome
        verdict = judge_raised(error, job.device_kind)
        if verdict.outcome in (Outcome.PASSED, Outcome.NOT_RUN):
            return verdict
        where = traceback_of(error, Path(str(module.__file__)))
        return replace(verdict, detail=f"{verdict.detail}\n{where}")
    return judge_returned(returned, job.device_kind)


class _Device:
    """The device of a module that is open: by its own fixture, or else one chip."""

    def __init__(
        self, module: ModuleType, live: Any, *, fixture: Iterator[Any] | None, chip: Devices | None
    ) -> None:
        self.module = module
        self.live = live
        self._fixture = fixture
        self._chip = chip

    def tidy(self) -> None:
        """Drop compiled programs when there are many."""
        if self._chip is not None:
            self._chip.tidy()

    def close(self) -> None:
        """Close it as it was opened; NotReplayable if the module's fixture fails at that."""
        self.live = None
        if self._chip is not None:
            self._chip.close()
        if self._fixture is not None:
            try:
                next(self._fixture, None)
            except Exception as error:
                raise NotReplayable(
                    f"{FIXTURE} of {self.module.__file__} failed to close its device: {told(error)}"
                ) from error


def _open(module: ModuleType, device_kind: DeviceKind) -> _Device:
    """Open the device of a module; NotReplayable where that fails."""
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
    """Return the fixture of a module, begun, and the device that it gave."""
    try:
        fixture = iter(make())
        given = next(fixture)
    except (Exception, SystemExit) as error:
        where = traceback_of(error, Path(str(module.__file__)))
        raise NotReplayable(
            f"{FIXTURE} of {module.__file__} could not open a device: {told(error)}\n{where}"
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
    """Make random numbers the same each time, of every library that is in use."""
    random.seed(seed)
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None:
        torch.manual_seed(seed)
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
