"""Tell where a run took place, in words: software, board, command, and how it ended."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optrove.model.records import DeviceParameters, Environment, Run


def environment_rows(run: Run) -> tuple[tuple[str, str], ...]:
    """Return what is known, each with what it is; what is not known is left out."""
    environment = run.environment
    rows = {
        "run": run.id,
        "kind": run.kind.value,
        "model": run.model,
        "started": run.started_at,
        "finished": run.finished_at or "not finished",
        "exit code": None if run.exit_code is None else str(run.exit_code),
        "command": shlex.join(environment.command_line),
        "device": environment.device_kind.value,
        "board": environment.board,
        "architecture": environment.arch,
        "chips": None if environment.device_count is None else str(environment.device_count),
        "opened with": _device(environment.device),
        "ttnn": environment.ttnn_version,
        "torch": environment.torch_version,
        "optrove": environment.optrove_version,
        "Python": environment.python_version,
        "platform": environment.platform,
        "host": environment.host,
        "commit": _commit(environment),
    }
    return tuple((name, text) for name, text in rows.items() if text)


def _commit(environment: Environment) -> str | None:
    if environment.git_sha is None:
        return None
    return f"{environment.git_sha}{' with changes' if environment.git_dirty else ''}"


def _device(device: DeviceParameters | None) -> str | None:
    if device is None:
        return None
    mesh = None if device.mesh_shape is None else "x".join(map(str, device.mesh_shape))
    facts = {
        "mesh": mesh,
        "fabric": device.fabric_config,
        "dispatch axis": device.dispatch_axis,
        "l1_small_size": device.l1_small_size,
        "trace_region_size": device.trace_region_size,
        "worker_l1_size": device.worker_l1_size,
        "command queues": device.command_queues,
    }
    return ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)
