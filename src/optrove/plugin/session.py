"""Facts that all processes of one pytest session share."""

from __future__ import annotations

import inspect
import os
import re
import uuid
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import FrameType

BOARD = "optrove-board"
"""By which name the mock board of a session is registered."""

_RUN_ID: pytest.StashKey[str] = pytest.StashKey()
_WORKER_INPUT = "optrove_run_id"


def run_id(config: pytest.Config) -> str:
    """Return the id of this session, which its workers share."""
    given = _worker_input(config) or {}
    if _WORKER_INPUT in given:
        return str(given[_WORKER_INPUT])
    asked = getattr(config.known_args_namespace, "optrove_run_id", None)
    return config.stash.setdefault(_RUN_ID, asked or uuid.uuid4().hex)


def is_worker(config: pytest.Config) -> bool:
    """Tell whether this is a worker of pytest-xdist."""
    return _worker_input(config) is not None


def process_number(config: pytest.Config) -> int:
    """Return the number of this process in its session: 0, or for the worker gw0: 1."""
    given = _worker_input(config)
    if given is None:
        return 0
    digits = re.search(r"\d+$", str(given.get("workerid", "")))
    # A worker may have been given a name of any kind (--tx popen//id=NAME).
    return int(digits[0]) + 1 if digits else os.getpid()


def has_workers(config: pytest.Config) -> bool:
    """Tell whether this is the controller of pytest-xdist, as far as the command line tells."""
    options = config.known_args_namespace
    asked = getattr(options, "numprocesses", None) or getattr(options, "tx", None)
    return bool(asked) and not is_worker(config)


def _worker_input(config: pytest.Config) -> dict[str, Any] | None:
    """Return what the controller of pytest-xdist has given to this worker; None elsewhere.

    pytest-xdist puts it on the config when conftests have been imported. Before that it is found
    in the module that execnet runs and that has started this pytest. The environment does not
    tell: whatever a worker starts inherits it.
    """
    given: dict[str, Any] | None = getattr(config, "workerinput", None)
    if given is not None:
        return given
    frame = inspect.currentframe()
    while frame is not None and _package(frame) in ("optrove", "_pytest", "pytest", "pluggy"):
        frame = frame.f_back
    if frame is not None and _package(frame) == "__channelexec__":
        return frame.f_globals.get("workerinput")
    return None


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


class Session:
    """The part of the plugin that is there whenever another one is."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Give the session's id to a worker of pytest-xdist."""
        node.workerinput[_WORKER_INPUT] = run_id(node.config)
