"""The commands that need no hardware: demo, boards, doctor, completion.

``docs/command-line.md`` describes the output of ``--json``.
"""

from __future__ import annotations

import platform
import shlex
import shutil
import sqlite3
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from optrove import settings
from optrove.cli.options import json_option, show, table_width
from optrove.errors import FrameworkMissing, NotFound
from optrove.model.causes import ttnn_problem
from optrove.model.exit_codes import FAILED
from optrove.settings import SIM, STORE, environment, simulator_directory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BOARD: Final = "n300"
OTHER_BOARD: Final = "p300"
HOME: Final = Path(".optrove")
TROVE: Final = HOME / "demo.db"
REPORT: Final = HOME / "demo.html"

_PACKAGE: Final = Path(__file__).parents[1]
_COPIED: Final = HOME / "examples"
_NEEDED: Final = ("ttnn", "pytest")

# These keep the demo from waiting for a pager, and from leaving files outside of its directory.
_QUIET: Final = {
    "PAGER": "cat",
    "PYTEST_ADDOPTS": "-p no:cacheprovider",
    "PYTHONDONTWRITEBYTECODE": "1",
}


@dataclass(frozen=True, slots=True)
class Step:
    """One command of the demo with its title.

    ``differs`` marks a command for which exit code 1 is an answer and not an error.
    """

    title: str
    words: tuple[str, ...]
    differs: bool = False

    @property
    def line(self) -> str:
        """The command as it is typed in a shell."""
        return shlex.join(("optrove", *self.words))

    def is_well(self, exit_code: int) -> bool:
        """Return whether the exit code is a good one."""
        return exit_code == 0 or (self.differs and exit_code == 1)


def can_compute() -> bool:
    """Return whether torch is installed, which computes numerics on mock boards."""
    return find_spec("torch") is not None


def prepared() -> Path:
    """Return the directory of the examples, and remove the trove of an earlier demo.

    The examples of an installed package are copied to a place where users can read them.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise FrameworkMissing(
            f"the demo traces tests of small ttnn models and needs {' and '.join(missing)}; "
            f"pip install 'optrove[ttnn]' pytest, with CPython 3.10 or 3.12 on Linux x86_64"
        )
    _forget(TROVE)
    packaged, checkout = _PACKAGE / "_examples", _PACKAGE.parents[1] / "examples"
    if packaged.is_dir():
        shutil.copytree(packaged, _COPIED, dirs_exist_ok=True)
        return _COPIED
    if checkout.is_dir():
        here = Path.cwd()
        return checkout.relative_to(here) if checkout.is_relative_to(here) else checkout
    raise NotFound(
        f"the demo's examples are neither in {packaged} nor in {checkout}; "
        f"install optrove again, from its wheel or from a checkout"
    )


def steps(examples: Path, *, shadow: bool) -> tuple[Step, ...]:
    """Return the commands of the demo; with ``shadow``, torch computes numerics."""
    on_mock = ("--board", BOARD)
    traced = (*on_mock, "--shadow") if shadow else on_mock
    executed = (*on_mock, "--device", "shadow") if shadow else on_mock
    small = ("--", "-q", "-k", "small")

    def trace(model: str, *more: str) -> tuple[str, ...]:
        test = str(examples / model / f"test_{model}.py")
        return ("trace", test, "--model", model, *traced, *(more or ("--", "-q")))

    return (
        Step("Run a transformer encoder's own tests, and record every op call", trace("encoder")),
        Step("The same for a sharded CNN", trace("efficientnet", *small)),
        Step("And for a Llama on both chips, prefill and decode", trace("llama")),
        Step("Which ops do they call, in how many configurations, how often?", ("ops",)),
        Step("Show one exact configuration", ("show", "sigmoid_accurate", "1")),
        Step(
            "Configurations that differ only in a number, grouped",
            ("show", "paged_fill_cache", "--families"),
        ),
        Step(
            "Replay a call: is it the recorded one?",
            ("replay", "sigmoid_accurate", *executed),
        ),
        Step(
            "Would the Llama run on a Blackhole board, and if not, why not?",
            ("check-board", OTHER_BOARD, "--model", "llama"),
            differs=True,
        ),
        Step(
            "Execute every case that computes, on the board it came from",
            ("sweep", "*", *executed, "--summary"),
        ),
        Step("The results as a web page", ("report", "-o", str(REPORT))),
    )


def done(step: Step) -> int:
    """Run a command of the demo as it is shown, and return its exit code."""
    command = [sys.executable, "-m", "optrove", *step.words]
    with environment({**_QUIET, STORE.name: str(TROVE)}):
        return subprocess.run(command, check=False).returncode  # noqa: S603 - our own words


def _forget(trove: Path) -> None:
    for left in trove.parent.glob(f"{trove.name}*"):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()


@click.command()
@click.option(
    "--shadow/--no-shadow",
    default=None,
    help="With or without torch numbers  [default: with, if torch is installed]",
)
def demo(*, shadow: bool | None) -> None:
    """Trace small models on a mock board, query, replay, sweep, write a report.

    It prints each command and runs it. It needs ttnn and pytest, no board, and a minute or two. Its
    files are in .optrove: demo.db, which each demo recreates, and demo.html.

    \b
    Example:
      optrove demo
    """
    computes = can_compute() if shadow is None else shadow
    script = steps(prepared(), shadow=computes)
    began = time.monotonic()
    click.echo(_introduction(computes=computes))
    _show("Everything below uses its own trove", f"export {STORE.name}={TROVE}")
    failed = []
    for step in script:
        _show(step.title, step.line)
        if not step.is_well(done(step)):
            failed.append(step)
    click.echo(_ending(failed, len(script), time.monotonic() - began))
    sys.exit(FAILED if failed else 0)


def _introduction(*, computes: bool) -> str:
    real = (
        "The real ttnn on mock boards: its validation, output specs and memory checks, no hardware."
    )
    if computes:
        return f"{real}\nNumbers: torch computes each op, and ttnn's own packing rounds the result."
    pip = shlex.join([sys.executable, "-m", "pip", "install", "torch"])
    return f"{real}\nNo numbers without torch. For PCC in this demo: {pip}"


def _show(title: str, line: str) -> None:
    """Print a command; flushed, since another process prints next."""
    click.echo(f"\n{click.style(title, bold=True)}\n{click.style('$', fg='green')} {line}")
    sys.stdout.flush()


def _ending(failed: Sequence[Step], count: int, seconds: float) -> str:

    lines = [""]
    if failed:
        lines += [f"{len(failed)} of {count} commands failed:"]
        lines += [f"  {step.line}" for step in failed]
    else:
        lines += [f"{count} commands, {seconds:.0f} s, all good."]
    lines += [f"report: {REPORT.absolute().as_uri()}", "", "Next:"]
    if shutil.which("optrove") is None:
        lines += [f"  . {shlex.quote(str(Path(sys.prefix) / 'bin' / 'activate'))}"]
    lines += [
        f"  export {STORE.name}={shlex.quote(str(TROVE.absolute()))}",
        "  optrove show linear --memory SHARDED",
        "  optrove who linear --by memory",
        "  optrove testgen linear -o tests_of_linear",
        "For your own tests, in the default trove .optrove/trove.db:",
        f"  unset {STORE.name}",
        "  optrove trace YOUR_TEST.py --board n300",
    ]
    return "\n".join(lines)


@click.command()
@json_option
def boards(*, as_json: bool) -> None:
    """List the boards that can be opened without hardware.

    The grids of compute cores and of DRAM banks are those that ttnn reports for the opened board,
    as columns x rows; mesh shapes are rows x columns of chips.

    \b
    Example:
      optrove boards
      OPTROVE_BOARD=t3k pytest tests/
    """
    from optrove.frameworks.ttnn.board.table import BOARDS
    from optrove.report.document import Column, table

    titles = ("board", "arch", "chips", "mesh shapes", "grid", "DRAM")
    document = table(
        [Column(name, right=name == "chips") for name in titles],
        [
            (
                board.name,
                board.arch,
                board.chips,
                " ".join(f"{height}x{width}" for height, width in board.mesh_shapes),
                *(f"{x}x{y}" for x, y in (board.compute_grid, board.dram_grid)),
            )
            for board in BOARDS.values()
        ],
    )
    show(
        [document],
        lambda: [
            {
                "board": board.name,
                "arch": board.arch,
                "chips": board.chips,
                "mesh_shapes": board.mesh_shapes,
                "compute_grid": board.compute_grid,
                "dram_grid": board.dram_grid,
                "title": board.title,
            }
            for board in BOARDS.values()
        ],
        as_json=as_json,
    )


LIMIT_SECONDS: Final = 120
WHEEL_PYTHONS: Final = ((3, 10), (3, 12))

# Opens a mock board and adds two tensors, like the first steps of a user.
TRIAL: Final = """
import sys, optrove
with optrove.mock_board(sys.argv[1]):
    import ttnn
    device = ttnn.open_device(device_id=0)
    tile = ttnn.zeros([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    ttnn.add(tile, tile)
    ttnn.close_device(device)
"""


# The same with real kernels; the sum shows that they ran.
SIMULATOR_TRIAL: Final = """
import sys, optrove
with optrove.sim_board(sys.argv[1]):
    import ttnn
    device = ttnn.open_device(device_id=0)
    tile = ttnn.ones([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    total = ttnn.add(tile, tile).cpu().to_list()
    ttnn.close_device(device)
    if total != [[2.0] * 32] * 32:
        sys.exit(f"1 + 1 was {total[0][0]}")
"""


_COLORS: Final = {"ok": "green", "missing": "yellow", "broken": "red"}


class State(str, Enum):
    """The state of a part: working, absent (which may be fine), or broken."""

    OK = "ok"
    MISSING = "missing"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one part, and how to fix it."""

    part: str
    state: State
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Extra:
    """An optional part of the installation: the package to look for and the extra's name."""

    part: str
    package: str
    extra: str
    purpose: str


EXTRAS: Final = (
    Extra("torch", "torch", "torch", "numerics on mock boards (--optrove-shadow)"),
    Extra("pytest", "pytest", "test", "pytest --optrove-board"),
    Extra("PostgreSQL driver", "psycopg", "postgres", "a team's trove by its URL"),
    Extra("Ray", "ray", "ray", "optrove sweep --engine ray"),
    Extra("web server", "starlette", "web", "optrove serve"),
)


def examine(board: str = "n150") -> Iterator[Finding]:
    """Yield the findings, part by part; opens the mock board ``board`` as a trial."""
    yield _python()
    ttnn = _ttnn()
    yield ttnn
    yield _real_boards()
    yield _mock_boards(board, has_ttnn=ttnn.state is State.OK)
    yield _simulated_boards(has_ttnn=ttnn.state is State.OK)
    yield _tracing()
    yield Finding("store: SQLite", State.OK, sqlite3.sqlite_version)
    for extra in EXTRAS:
        yield _extra(extra)


def is_healthy(findings: tuple[Finding, ...]) -> bool:
    """Return whether nothing is broken; parts that are not installed do not matter."""
    return all(finding.state is not State.BROKEN for finding in findings)


def _python() -> Finding:
    found = f"{platform.python_version()} ({platform.system()} {platform.machine()})"
    return Finding("Python", State.OK, found)


def _ttnn() -> Finding:
    from optrove.frameworks.ttnn.board.runtime import installed_package, installed_version

    try:
        installed_package()
    except FrameworkMissing:
        right_python = sys.version_info[:2] in WHEEL_PYTHONS
        before = "" if right_python else "use CPython 3.12 or 3.10 on Linux x86_64, then: "
        return Finding("ttnn", State.MISSING, "needed to run ops", before + install("ttnn"))
    return Finding("ttnn", State.OK, installed_version())


def _real_boards() -> Finding:
    from optrove.frameworks.ttnn.board.table import DEVICE_DIRECTORY

    devices = sorted(DEVICE_DIRECTORY.glob("[0-9]*")) if DEVICE_DIRECTORY.is_dir() else []
    if devices:
        return Finding("boards: real", State.OK, f"{len(devices)} device(s)")
    remedy = "not needed: mock boards run the real ttnn (optrove boards)"
    return Finding("boards: real", State.MISSING, f"nothing in {DEVICE_DIRECTORY}", remedy)


def _mock_boards(board: str, *, has_ttnn: bool) -> Finding:
    from optrove.frameworks.ttnn.board.table import BOARDS

    part = "boards: mock"
    if not has_ttnn:
        return Finding(part, State.MISSING, f"{len(BOARDS)} known, ttnn missing", "install ttnn")
    problem = _trial(TRIAL, board)
    if problem is None:
        return Finding(part, State.OK, f"{board} opened and added two tensors")
    remedy = "fix the reported problem; optrove was tested with ttnn 0.78 to 0.81"
    return Finding(part, State.BROKEN, f"{board} did not open: {problem}", remedy)


def _simulated_boards(*, has_ttnn: bool) -> Finding:
    from optrove.frameworks.ttnn.board.simulator import (
        LIBRARIES,
        compiler_version,
        missing_downloads,
        pinned_compiler,
    )
    from optrove.frameworks.ttnn.board.table import BOARDS

    part = "boards: simulated"
    if not has_ttnn:
        return Finding(part, State.MISSING, "for --device sim, ttnn missing", "install ttnn")
    directory = simulator_directory()
    archs = [
        arch
        for arch, library in LIBRARIES.items()
        if directory is not None and (directory / library).is_file()
    ]
    missing = missing_downloads(directory, tuple(archs or LIBRARIES))
    if missing or directory is None:
        found = f"{SIM.name} is not set" if directory is None else f"incomplete in {directory}"
        return Finding(part, State.MISSING, f"for --device sim; {found}", "; ".join(missing))
    version, pinned = compiler_version(directory / "sfpi"), pinned_compiler()
    compiler = f"sfpi {version or 'of unknown version'}"
    remedy = ""
    if version != pinned.version:
        compiler += f", and not the {pinned.version} of this ttnn"
        remedy = f"download {pinned} and unpack it as ${SIM.name}/sfpi"
    board = next(each.name for each in BOARDS.values() if each.arch == archs[0])
    problem = _trial(SIMULATOR_TRIAL, board)
    if problem is not None:
        found = f"{board} did not run: {problem}; {compiler}"
        return Finding(part, State.BROKEN, found, remedy or "fix the reported problem")
    return Finding(part, State.OK, f"{board} ran a kernel; {compiler}", remedy)


def _tracing() -> Finding:
    from optrove.frameworks.ttnn.probe.fast_path import is_native

    if is_native():
        return Finding("tracing", State.OK, "in C")
    remedy = "for less overhead, reinstall optrove where there is a C compiler"
    return Finding("tracing", State.OK, "in Python", remedy)


def _trial(script: str, *arguments: str) -> str | None:
    """Run a script in its own process; return the problem, or None."""
    try:
        done = subprocess.run(  # noqa: S603 - our own Python and our own script
            [sys.executable, "-c", script, *arguments],
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {LIMIT_SECONDS} s"
    if done.returncode == 0:
        return None
    from optrove.replay.workers import describe_exit

    # The simulator's reason is on standard output; warnings on standard error are not the reason.
    refusals = [line for line in done.stdout.splitlines() if "] ERROR: " in line]
    lines = refusals or done.stderr.strip().splitlines() or [describe_exit(done.returncode)]
    return (None if refusals else ttnn_problem(done.stderr)) or lines[-1]


def _extra(extra: Extra) -> Finding:
    from optrove.frameworks.installed import version_of

    if find_spec(extra.package) is None:
        return Finding(extra.part, State.MISSING, f"for {extra.purpose}", install(extra.extra))
    problem = _trial(f"import {extra.package}")
    if problem is not None:
        remedy = f"pip install --force-reinstall {extra.package}"
        return Finding(extra.part, State.BROKEN, f"cannot be imported: {problem}", remedy)
    return Finding(extra.part, State.OK, version_of(extra.package) or "of unknown version")


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'optrove[{extra}]' (in a checkout: pip install -e '.[{extra}]')"


@click.command()
@click.option(
    "--board",
    metavar="NAME",
    help="Mock board to open  [default: OPTROVE_BOARD, else n150]",
)
@json_option
def doctor(*, board: str | None, as_json: bool) -> None:
    """Check what works on this machine, and how to fix the rest.

    It opens one mock board in its own process. The exit code is 1 if an installed part does not
    work; parts that are not installed do not matter.

    \b
    Example:
      optrove doctor
      optrove doctor --board galaxy --json
    """
    from rich.console import Console

    from optrove.frameworks.ttnn.board.table import find_board

    name = find_board(board or settings.BOARD.value or "n150").name
    with Console(stderr=True).status(f"opening a mock {name} ..."):
        findings = tuple(examine(name))
    healthy = is_healthy(findings)
    if as_json:
        report = {"healthy": healthy, "findings": [asdict(finding) for finding in findings]}
        show((), lambda: report, as_json=True)
    else:
        click.echo("\n".join(finding_lines(findings)))
    sys.exit(0 if healthy else FAILED)


def finding_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the lines of each part, with the remedy below them."""
    from optrove.report.draw_text import READABLE, wrapped

    width = table_width() or READABLE
    widest = max(len(finding.part) for finding in findings)
    for finding in findings:
        state = finding.state.value
        label = f"{state:8} {finding.part:{widest}}  "
        first, *more = wrapped(label, finding.detail, width)
        # Colors come last: they count as letters when lines are wrapped.
        yield click.style(state, fg=_COLORS[state]) + first[len(state) :]
        yield from more
        if finding.remedy:
            yield from wrapped(" " * len(label) + "-> ", finding.remedy, width)


SHELLS: Final = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(*, shell: str) -> None:
    """Print a script that completes commands and options in a shell.

    Save it where the shell looks for completions, and open a new shell. For zsh, the directory must
    be in fpath before compinit runs.

    \b
    Example:
      optrove completion bash > ~/.local/share/bash-completion/completions/optrove
      optrove completion zsh > ~/.zfunc/_optrove
      optrove completion fish > ~/.config/fish/completions/optrove.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise NotFound(f"the installed click has no completion for {shell}; pip install -U click")
    command = click.get_current_context().find_root().command
    click.echo(found(command, {}, "optrove", "_OPTROVE_COMPLETE").source())


COMMANDS: Final = (demo, boards, doctor, completion)
