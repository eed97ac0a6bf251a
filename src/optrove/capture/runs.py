"""The record of a new Run: its command, the software that runs it, and the board."""

from __future__ import annotations

import platform
import subprocess
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from optrove.frameworks.installed import version_of
from optrove.frameworks.ttnn.board.mock import device_in_use
from optrove.frameworks.ttnn.board.table import find_board
from optrove.model.ops import op_pattern
from optrove.model.records import Environment, Run, RunKind, now
from optrove.settings import MODEL
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
    """Return the Run that begins now; the default of ``model`` is HF_MODEL."""
    named = model or MODEL.value
    return Run(
        id=run_id or uuid.uuid4().hex,
        kind=RunKind.TRACE,
        source=f"{source} [HF_MODEL:{named}]" if named else source,
        environment=_environment(command_line),
        started_at=now(),
        model=named,
    )


def with_board(run: Run) -> Run:
    """Return the Run with the board that ttnn runs on in this process."""
    found = device_in_use()
    if found is None:
        return run
    kind, name = found
    if name is None:
        return replace(run, environment=replace(run.environment, device_kind=kind))
    board = find_board(name)
    environment = replace(
        run.environment,
        device_kind=kind,
        board=board.name,
        arch=board.arch,
        device_series=board.name,
        device_count=board.chips,
    )
    return replace(run, environment=environment)


def filter_of(
    include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> Callable[[str], str | None]:
    """Return a function that returns why an op is not recorded, or None if it is.

    Names may have ``ttnn.`` in front or not, and ``*`` for any text.
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


def git(*words: str, directory: Path | None = None) -> str:
    """Return the output of git in a directory, by default the current one; "" if it fails."""
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
