"""Load sweep modules, execute their vectors, and judge the results.

``run`` returns ``(passed, message)`` or ``[(passed, message), nanoseconds]``. A PCC that the
message tells is a measurement. On a mock board without numerics every number that is read back
means nothing, so that a verdict about numbers does not count there.
"""

from __future__ import annotations

import inspect
import math
import random
import re
import sys
import time
import traceback
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from hashlib import sha256
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import BadData, BadTarget, NotReplayable
from optrove.frameworks.executor import Raised, Stage, refuse_inert
from optrove.frameworks.installed import LoadedTables
from optrove.frameworks.ttnn.board.devices import ALONE, Devices
from optrove.model.records import Attempt, DeviceKind, DeviceParameters, Measurement, Outcome
from optrove.replay.judge import classify
from optrove.serializer.build import build

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from optrove.frameworks.executor import Telling
    from optrove.model.records import Job


SWEEPS: Final = "sweeps"
"""The directory below which tt-metal keeps its modules; names are dotted from there on."""

executing: ContextVar[bool] = ContextVar("executing", default=False)
"""Whether modules are imported to execute vectors, which are there already, not to make them."""

every_combination: ContextVar[bool] = ContextVar("every_combination", default=False)
"""Whether loaders give every combination of traced values, whatever the module asks for."""

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
    """Import the file of a sweep module; BadTarget names it and says what is wrong with it.

    It finds what lies beside it, in the working directory, and in the checkout of tt-metal that
    it belongs to, as it would when tt-metal's own runner had started it.
    """
    file = file.absolute()
    name = _LOADED + sha256(str(file).encode()).hexdigest()[:16]
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise BadTarget(f"{file} is no Python file; name the file of a sweep module")
    module = module_from_spec(spec)
    # Known by its name while it runs, as dataclasses and multiprocessing expect.
    sys.modules[name] = module
    _make_reachable(file)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise BadTarget(
            f"sweep module {file} cannot be imported: {told(error)}\n{traceback_of(error, file)}"
        ) from error
    _check(module, file)
    return module


def told(error: BaseException) -> str:
    """Return what an exception says, in one line."""
    if isinstance(error, SystemExit):
        return f"it ends the process with sys.exit({error.code!r})"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def traceback_of(error: BaseException, file: Path) -> str:
    """Return the traceback from the first line of the module itself on."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next((place for place, each in enumerate(frames) if each.filename == str(file)), 0)
    return "".join(traceback.format_list(frames[first:])).rstrip()


def _make_reachable(file: Path) -> None:
    """Let a module import what belongs to it, now and later."""
    roots = [file.parent, Path.cwd()]
    for directory in file.parents:
        if (directory / _FRAMEWORK).is_dir():
            roots += [directory, directory / _FRAMEWORK]
            break
    for root in map(str, roots):
        if root not in sys.path:
            # At the end: nothing of the user may stand before what is installed.
            sys.path.append(root)


def _check(module: ModuleType, file: Path) -> None:
    """Raise BadTarget if a module lacks what makes it one."""
    parameters: Any = getattr(module, "parameters", None)
    if not isinstance(parameters, Mapping):
        raise BadTarget(
            f"{file} has no dictionary of suites called `parameters`; is it a sweep module?"
        )
    if not callable(getattr(module, "run", None)):
        raise BadTarget(f"{file} has no function `run`; is it a sweep module?")


PCC: Final = "pcc"
END_TO_END: Final = "e2e_ns"

MEANINGLESS: Final = (
    "numbers of a mock board mean nothing, so the module's verdict on them does not count; "
    "with --device shadow it does"
)

_NUMBER: Final = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf"
_PCC: Final = re.compile(rf"pcc\b[^-+.\d\n]{{0,16}}({_NUMBER})\b", re.IGNORECASE)
_ALONE: Final = re.compile(rf"\s*({_NUMBER})\s*")
_NUMERIC: Final = re.compile(r"\b(pcc|allclose|atol|rtol|ulp|tolerance)\b", re.IGNORECASE)
_PAIR: Final = 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """The Outcome of a vector, in the module's own words, and what there is to note about it."""

    outcome: Outcome
    detail: str | None = None
    measurements: tuple[Measurement, ...] = ()
    notes: tuple[str, ...] = ()


def judge_returned(returned: Any, device_kind: DeviceKind) -> Verdict:
    """Return the verdict on what ``run`` returned."""
    pair, nanoseconds = _parts(returned)
    if pair is None:
        words = (
            f"run returned {type(returned).__name__} {str(returned)[:200]!r}; "
            f"it has to return (passed, message) or [(passed, message), nanoseconds]"
        )
        return Verdict(Outcome.RAISED, words)
    passed, message = bool(pair[0]), str(pair[1]).strip()
    timed = () if nanoseconds is None else (Measurement(END_TO_END, nanoseconds),)
    if device_kind is DeviceKind.MOCK and (not message or is_numeric(message)):
        note = f"{MEANINGLESS}: it says {passed}, {message!r}"
        return Verdict(Outcome.PASSED, None, timed, (note,))
    measured = (*_pcc(message, passed=passed), *timed)
    if passed:
        return Verdict(Outcome.PASSED, None, measured)
    return Verdict(Outcome.NUMERICS, message or "run returned False, without a message", measured)


def judge_raised(error: BaseException, device_kind: DeviceKind) -> Verdict:
    """Return the verdict on what ``run`` raised."""
    text = str(error)
    skipped = getattr(getattr(sys.modules.get("pytest"), "skip", None), "Exception", None)
    if skipped is not None and isinstance(error, skipped):
        return Verdict(Outcome.NOT_RUN, f"the module skips it: {text}")
    if isinstance(error, SystemExit):
        return Verdict(Outcome.RAISED, told(error))
    outcome, words = classify(Raised(type(error).__name__, text))
    if isinstance(error, AssertionError) and is_numeric(text):
        if device_kind is DeviceKind.MOCK:
            return Verdict(Outcome.PASSED, notes=(f"{MEANINGLESS}: it raises {told(error)}",))
        return Verdict(Outcome.NUMERICS, words, _pcc(text, passed=False))
    return Verdict(outcome, words)


def is_numeric(message: str) -> bool:
    """Tell whether a message speaks of numbers that were compared."""
    return bool(_ALONE.fullmatch(message) or _NUMERIC.search(message))


def _parts(returned: Any) -> tuple[tuple[Any, Any] | None, float | None]:
    """Return the pair of verdict and message, and the time; no pair if it has another form."""
    if isinstance(returned, list) and returned and _is_pair(returned[0]):
        first, *rest = returned
        return (first[0], first[1]), float(rest[0]) if rest and _is_number(rest[0]) else None
    if _is_pair(returned):
        return (returned[0], returned[1]), None
    return None, None


def _is_pair(value: Any) -> bool:
    """Tell whether it is a truth value with something that can be a message."""
    if not isinstance(value, (tuple, list)) or len(value) != _PAIR:
        return False
    truth = value[0]
    # The truth values of numpy and torch are no bools, and say what they are.
    return isinstance(truth, bool) or str(getattr(truth, "dtype", "")).endswith("bool")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _pcc(message: str, *, passed: bool) -> tuple[Measurement, ...]:
    found = _PCC.search(message) or _ALONE.fullmatch(message)
    if found is None:
        return ()
    value = float(found[1])
    # A lone number beyond these bounds is something else that the module has measured.
    if not -1.0 <= value <= 1.0 and not math.isnan(value):
        return ()
    return (Measurement(PCC, value, None, passed),)


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
