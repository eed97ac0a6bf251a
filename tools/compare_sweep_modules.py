"""Compare tt-metal's runner and optrove: the vectors of sweep modules from which they return.

    python tools/compare_sweep_modules.py CHECKOUT --master FILE [--board galaxy]
        [--modules 'model_traced/*.py' ...] [--suite-name NAME] [--limit N] [--seconds S]
        [--details]

CHECKOUT is a directory of tt-metal, whose own code generates the vectors, passes them through the
text of its vector files, and calls ``execute_test``. optrove generates and executes the vectors of
the same modules with the code of its worker processes. A table counts the vectors of each module
from which either returns. The exit code is 1 if tt-metal's runner returns from a vector and
optrove does not.

A module runs in a child process of its own, which is forked when ttnn is imported and no device
is open. A child that dies or hangs loses one vector; the rest runs in a new child. A module that
hangs three times is not continued.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import sys
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optrove.frameworks.ttnn.board.mock import mock_board
from optrove.frameworks.ttnn.board.table import find_board
from optrove.model.case import Case
from optrove.model.ops import VECTORS
from optrove.model.records import SKIPPED, DeviceKind, Job, Outcome
from optrove.replay.messages import WorkerSetup
from optrove.replay.sweep_module import FACTS, ModuleExecution, module_tables
from optrove.serializer.build import build
from optrove.serializer.wire import decode
from optrove.settings import MASTER, environment
from optrove.sweep.generating import generate
from optrove.sweep.vectors import planned_vector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FRAMEWORK = Path("tests") / "sweep_framework"
HANGS = 3
HUNG = "no answer in time"
RETURNED = "returned"


@dataclass(frozen=True)
class Options:
    """The options of the command."""

    checkout: Path
    board: str
    suite: str | None
    limit: int | None
    seconds: float

    def includes(self, suite: str) -> bool:
        """Return whether the vectors of a suite are compared."""
        return self.suite is None or self.suite == suite


def theirs(file: Path, options: Options) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the key of each vector and a function that executes it with tt-metal's code."""
    from framework.permutations import permutations
    from framework.serialize import deserialize_vector_structured, serialize_structured
    from sweep_utils.perf_utils import execute_test

    name = ".".join(file.relative_to(options.checkout / FRAMEWORK / "sweeps").with_suffix("").parts)
    # Where its modules look for the name of their op.
    sys.argv = ["sweeps_runner.py", "--module-name", name]
    module = import_module(f"sweeps.{name}")
    device: list[Any] = []

    def run(vector: dict[str, Any]) -> str:
        if not device:
            device.append(next(_device(module)))
        try:
            status, message, _ = execute_test(module, vector, device[0][0])
        except Exception as error:  # noqa: BLE001 - the border to the module
            return f"{type(error).__name__}: {error}"
        return f"{RETURNED} {status}, {str(message)[:200]}"

    suites = {name: each for name, each in module.parameters.items() if options.includes(name)}
    for suite, parameters in suites.items():
        for vector in permutations(parameters):
            raw = {**vector, "suite_name": suite, "sweep_name": name}
            if hasattr(module, "invalidate_vector") and module.invalidate_vector(raw)[0]:
                continue
            passed = {key: item for key, item in vector.items() if key not in FACTS}
            text = json.dumps({key: serialize_structured(item) for key, item in passed.items()})
            read = deserialize_vector_structured(json.loads(text))
            yield _key(suite, read, serialize_structured), lambda read=read: run(read)


def _device(module: Any) -> Iterator[Any]:
    """Return the fixture that tt-metal's runner takes; it is never closed, the process ends."""
    from framework.device_fixtures import default_device

    make = getattr(module, "mesh_device_fixture", None)
    fixture: Iterator[Any] = default_device() if make is None else make()
    return fixture


def ours(file: Path, options: Options) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the key of each vector and a function that executes it as a worker of optrove does."""
    from framework.serialize import serialize_structured

    found = generate(file)
    execution = ModuleExecution(WorkerSetup("compared", DeviceKind.MOCK, options.board))
    tables = module_tables(sys.modules[f"sweeps.{found.name}"])()

    def run(case_id: str, suite: str, case: Case) -> str:
        job = planned_vector(case_id, suite, Job(case, DeviceKind.MOCK, module=str(file))).job
        attempt = execution.attempt(job, case_id, lambda _: None)
        detail = attempt.detail or ""
        if attempt.outcome in (Outcome.PASSED, Outcome.NUMERICS) or detail.startswith(SKIPPED):
            return f"{RETURNED} {attempt.outcome.value} {detail[:200]}"
        return f"{attempt.outcome.value}: {detail}"

    values = [(name, decode(json.loads(text))) for name, text in found.arguments]
    for suite, case_id, numbers in found.vectors:
        if not options.includes(suite):
            continue
        arguments = tuple(values[number] for number in numbers)
        case = Case(f"{VECTORS}{found.name}.{suite}", arguments)
        passed = {name: build(item, tables) for name, item in arguments if name not in FACTS}
        yield (
            _key(suite, passed, serialize_structured),
            lambda case_id=case_id, suite=suite, case=case: run(case_id, suite, case),
        )


def _key(suite: str, vector: dict[str, Any], serialize: Callable[[Any], Any]) -> str:
    """Return a key that is the same for the same vector on both sides."""
    content = [suite, {name: serialize(item) for name, item in vector.items()}]
    return sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def executed(side: Callable[..., Any], file: Path, options: Options) -> dict[str, str]:
    """Return the answer for each vector by its key, or the reason why there are none."""
    done: dict[str, str] = {}
    while True:
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no other thread of this process holds a lock
            child = os.fork()
        if not child:
            os.close(reading)
            _in_child(writing, side, file, options, set(done))
        os.close(writing)
        begun, ended = _collect(reading, child, done, options.seconds)
        os.close(reading)
        if ended or begun is None or list(done.values()).count(HUNG) >= HANGS:
            return done


def _in_child(
    pipe: int, side: Callable[..., Any], file: Path, options: Options, done: set[str]
) -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)

    def say(*words: str) -> None:
        os.write(pipe, (json.dumps(words) + "\n").encode())

    try:
        vectors = list(side(file, options))
        if options.limit is not None and len(vectors) > options.limit:
            vectors.sort(key=lambda each: each[0])
            vectors = random.Random(0).sample(vectors, options.limit)  # noqa: S311 - a sample
        for key, run in vectors:
            if key not in done:
                say("begin", key)
                say("end", key, run()[:2000])
        say("all")
    except BaseException as error:  # noqa: BLE001 - the border of the child
        say("failed", f"{type(error).__name__}: {error}"[:2000])
    os._exit(0)


def _collect(
    pipe: int, child: int, done: dict[str, str], seconds: float
) -> tuple[str | None, bool]:
    """Read the answers of a child; return the vector that it has left open, and if it ended."""
    begun: str | None = None
    ended = False
    buffer = b""
    since = time.monotonic()
    while True:
        ready, _, _ = select.select([pipe], [], [], 1.0)
        if not ready:
            if time.monotonic() - since > seconds:
                os.kill(child, signal.SIGKILL)
            continue
        part = os.read(pipe, 1 << 16)
        if not part:
            break
        since = time.monotonic()
        *lines, buffer = (buffer + part).split(b"\n")
        for kind, *words in map(json.loads, lines):
            if kind == "begin":
                (begun,) = words
            elif kind == "end":
                done[words[0]], begun = words[1], None
            else:
                ended = True
                if kind == "failed":
                    done.setdefault("", words[0])
    _, status = os.waitpid(child, 0)
    if begun is not None and not ended:
        is_late = status == signal.SIGKILL
        done[begun] = HUNG if is_late else f"the process ended with status {status}"
    return begun, ended


def main() -> int:
    """Compare the modules that the arguments name, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--master", type=Path, default=None)
    parser.add_argument("--board", default="galaxy")
    parser.add_argument("--modules", nargs="+", default=["model_traced/*.py"])
    parser.add_argument("--suite-name", default=None)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--details", action="store_true")
    given = parser.parse_args()
    checkout = given.checkout.resolve()
    sys.path[:0] = [str(checkout / FRAMEWORK), str(checkout)]
    options = Options(checkout, given.board, given.suite_name, given.limit, given.seconds)
    changes = {"LOGURU_LEVEL": "ERROR"}
    if given.master is not None:
        changes[MASTER.name] = str(given.master.resolve())
    arch = {"ARCH_NAME": find_board(given.board).arch}
    with environment({**changes, **arch}), mock_board(given.board):
        _prepare()
        sweeps = checkout / FRAMEWORK / "sweeps"
        files = [file for pattern in given.modules for file in sorted(sweeps.glob(pattern))]
        return _compare(list(dict.fromkeys(files)), options, details=given.details)


def _prepare() -> None:
    """Import what all modules need, once for all children."""
    for name in ("ttnn", "torch", "framework.serialize", "sweep_utils.perf_utils"):
        import_module(name)


def _compare(files: list[Path], options: Options, *, details: bool) -> int:
    print(
        "| module | vectors | tt-metal returns | optrove returns | only tt-metal | only optrove |"
    )
    print("|---|--:|--:|--:|--:|--:|")
    total: Counter[str] = Counter()
    for file in files:
        answers = [executed(side, file, options) for side in (theirs, ours)]
        failed = [answer.pop("", None) for answer in answers]
        good = [{key for key, said in one.items() if said.startswith(RETURNED)} for one in answers]
        counts = {
            "vectors": len({*answers[0], *answers[1]}),
            "theirs": len(good[0]),
            "ours": len(good[1]),
            "only theirs": len(good[0] - good[1]),
            "only ours": len(good[1] - good[0]),
        }
        total.update(counts)
        print(f"| {file.stem} | {' | '.join(map(str, counts.values()))} |", flush=True)
        for side, problem in zip(("tt-metal", "optrove"), failed, strict=True):
            if problem is not None:
                print(f"  {side} cannot use it: {problem.splitlines()[0]}")
        for key in sorted(good[0] - good[1]):
            print(f"  optrove: {answers[1].get(key, 'has no such vector')}")
        for key in sorted({*answers[0]} - good[0]) if details else ():
            print(f"  tt-metal: {answers[0][key][:300]!r}\n  optrove: {answers[1].get(key)!r}")
    print(f"| total | {' | '.join(map(str, total.values()))} |")
    return int(total["only theirs"] > 0)


if __name__ == "__main__":
    sys.exit(main())
