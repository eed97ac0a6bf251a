"""Make the record of a Run that begins: what is run, by which software, on which board."""

from __future__ import annotations

import platform
import subprocess
import sys
import uuid
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from optrove.frameworks.ttnn.board.mock import board_in_use
from optrove.frameworks.ttnn.board.table import find_board
from optrove.frameworks.ttnn.probe.patching import SHADOW_ATTRIBUTE
from optrove.model.ops import op_pattern
from optrove.model.records import DeviceKind, Environment, Run, RunKind, now
from optrove.settings import model_name
from optrove.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_GIT_SECONDS = 10


def new_run(
    source: str,
    command_line: Sequence[str],
    *,
    run_id: str | None = None,
    model: str | None = None,
) -> Run:
    """Return the Run that begins now; the model is HF_MODEL's where none is named."""
    named = model or model_name()
    return Run(
        id=run_id or uuid.uuid4().hex,
        kind=RunKind.TRACE,
        source=f"{source} [HF_MODEL:{named}]" if named else source,
        environment=_environment(command_line),
        started_at=now(),
        model=named,
    )


def settled(run: Run) -> Run:
    """Return the Run with the board that ttnn has turned out to run on in this process."""
    ttnn = sys.modules.get("ttnn")
    if ttnn is None:
        return run
    name = board_in_use()
    if name is None:
        return replace(run, environment=replace(run.environment, device_kind=DeviceKind.HARDWARE))
    board = find_board(name)
    shadow = hasattr(ttnn, SHADOW_ATTRIBUTE)
    environment = replace(
        run.environment,
        device_kind=DeviceKind.SHADOW if shadow else DeviceKind.MOCK,
        board=board.name,
        arch=board.arch,
        device_series=board.name,
        device_count=board.chips,
    )
    return replace(run, environment=environment)


def filter_of(
    include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> Callable[[str], str | None]:
    """Return what gives the reason why an op is not wanted, None if it is.

    Names may come with or without ``ttnn.`` in front, and with ``*`` for anything.
    """
    wanted, unwanted = (tuple(map(op_pattern, names)) for names in (include, exclude))

    def left_out(op: str) -> str | None:
        if wanted and not any(pattern.fullmatch(op) for pattern in wanted):
            return f"not in --include {','.join(include)}"
        if any(pattern.fullmatch(op) for pattern in unwanted):
            return f"in --exclude {','.join(exclude)}"
        return None

    return left_out


def _environment(command_line: Sequence[str]) -> Environment:
    commit = git("rev-parse", "HEAD")
    return Environment(
        optrove_version=__version__,
        python_version=platform.python_version(),
        platform=platform.platform(),
        command_line=tuple(command_line),
        host=platform.node() or None,
        git_sha=commit or None,
        git_dirty=bool(git("status", "--porcelain")) if commit else None,
        ttnn_version=version_of("ttnn"),
        torch_version=version_of("torch"),
    )


def version_of(package: str) -> str | None:
    """Return the version of an installed package without importing it; None if it is not."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def git(*words: str, directory: Path | None = None) -> str:
    """Return what git says about a directory, by default the current one; nothing without git."""
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            ["git", *words],  # noqa: S607 - the git that the user has on the path
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
