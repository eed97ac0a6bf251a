"""A checkout of tt-metal, whose programs the tests run: the path is in TT_METAL_CHECKOUT."""

import os
import subprocess
import sys
from pathlib import Path

from parts import TT_METAL, leave_out

HERE = Path(__file__).parent


def checkout(*needed):
    """Return the path of the checkout; skip the test if there is none, or if it lacks a file."""
    text = os.environ.get("TT_METAL_CHECKOUT")
    if not text:
        leave_out(TT_METAL, "TT_METAL_CHECKOUT is not set")
    path = Path(text).resolve()
    missing = [name for name in needed if not (path / name).exists()]
    if missing:
        leave_out(TT_METAL, f"{path} has no {', '.join(missing)}")
    return path


def run(script, *arguments, cwd):
    """Run a script of this directory in a process of its own, in ``cwd``."""
    quiet = {"TT_LOGGER_LEVEL": "fatal", "LOGURU_LEVEL": "ERROR", "PYTHONDONTWRITEBYTECODE": "1"}
    slow = {"TTNN_CONFIG_OVERRIDES": '{"enable_fast_runtime_mode": false}'}
    done = subprocess.run(
        [sys.executable, str(HERE / script), *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **quiet, **slow},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout
