"""Find out what works on this machine, and what to do about the rest."""

from __future__ import annotations

import platform
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from optrove.errors import FrameworkMissing
from optrove.frameworks.ttnn.board.runtime import installed_package, installed_version
from optrove.frameworks.ttnn.board.table import BOARDS, DEVICE_DIRECTORY
from optrove.frameworks.ttnn.probe.fast_path import is_native

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT_SECONDS = 120
WHEEL_PYTHONS = ((3, 10), (3, 12))

# Opens a mock board and adds two tensors: what a user does first.
TRIAL = """
import sys, optrove
with optrove.mock_board(sys.argv[1]):
    import ttnn
    device = ttnn.open_device(device_id=0)
    tile = ttnn.zeros([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    ttnn.add(tile, tile)
    ttnn.close_device(device)
"""


class State(str, Enum):
    """How a part of the machine is: working, absent (which may be fine), or broken."""

    OK = "ok"
    MISSING = "missing"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report."""

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


EXTRAS = (
    Extra("torch", "torch", "torch", "numbers on mock boards (--optrove-shadow)"),
    Extra("pytest", "pytest", "test", "pytest --optrove-board"),
    Extra("PostgreSQL driver", "psycopg", "postgres", "a team's trove by its URL"),
    Extra("Ray", "ray", "ray", "optrove sweep --engine ray"),
    Extra("web server", "starlette", "web", "optrove serve"),
)


def examine(board: str = "n150") -> Iterator[Finding]:
    """Yield what was found, part by part; the mock board ``board`` is opened as a trial."""
    yield _python()
    ttnn = _ttnn()
    yield ttnn
    yield _real_boards()
    yield _mock_boards(board, has_ttnn=ttnn.state is State.OK)
    yield _tracing()
    yield Finding("store: SQLite", State.OK, sqlite3.sqlite_version)
    for extra in EXTRAS:
        yield _extra(extra)


def is_healthy(findings: tuple[Finding, ...]) -> bool:
    """Tell whether nothing is broken; what is merely not installed does no harm."""
    return all(finding.state is not State.BROKEN for finding in findings)


def _python() -> Finding:
    found = f"{platform.python_version()} ({platform.system()} {platform.machine()})"
    return Finding("Python", State.OK, found)


def _ttnn() -> Finding:
    try:
        installed_package()
    except FrameworkMissing:
        right_python = sys.version_info[:2] in WHEEL_PYTHONS
        before = "" if right_python else "use CPython 3.12 or 3.10 on Linux x86_64, then: "
        return Finding("ttnn", State.MISSING, "needed to run ops", before + install("ttnn"))
    return Finding("ttnn", State.OK, installed_version())


def _real_boards() -> Finding:
    devices = sorted(DEVICE_DIRECTORY.glob("[0-9]*")) if DEVICE_DIRECTORY.is_dir() else []
    if devices:
        return Finding("boards: real", State.OK, f"{len(devices)} device(s)")
    remedy = "not needed: mock boards run the real ttnn (optrove boards)"
    return Finding("boards: real", State.MISSING, f"nothing in {DEVICE_DIRECTORY}", remedy)


def _mock_boards(board: str, *, has_ttnn: bool) -> Finding:
    part = "boards: mock"
    if not has_ttnn:
        return Finding(part, State.MISSING, f"{len(BOARDS)} known, ttnn missing", "install ttnn")
    problem = _trial(TRIAL, board)
    if problem is None:
        return Finding(part, State.OK, f"{board} opened and added two tensors")
    remedy = "mend what it says; optrove was tried with ttnn 0.78 to 0.81"
    return Finding(part, State.BROKEN, f"{board} did not open: {problem}", remedy)


def _tracing() -> Finding:
    if is_native():
        return Finding("tracing", State.OK, "in C")
    remedy = "for less overhead, reinstall optrove where there is a C compiler"
    return Finding("tracing", State.OK, "in Python", remedy)


def _trial(script: str, *arguments: str) -> str | None:
    """Run a script in a process of its own; return what went wrong, or None."""
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
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {done.returncode}"


def _extra(extra: Extra) -> Finding:
    if find_spec(extra.package) is None:
        return Finding(extra.part, State.MISSING, f"for {extra.purpose}", install(extra.extra))
    problem = _trial(f"import {extra.package}")
    if problem is not None:
        remedy = f"pip install --force-reinstall {extra.package}"
        return Finding(extra.part, State.BROKEN, f"cannot be imported: {problem}", remedy)
    try:
        return Finding(extra.part, State.OK, version(extra.package))
    except PackageNotFoundError:
        return Finding(extra.part, State.OK, "of unknown version")


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'optrove[{extra}]' (in a checkout: pip install -e '.[{extra}]')"
