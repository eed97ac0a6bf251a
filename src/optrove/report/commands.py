"""Spell the commands that execute a case once more, as they are to be copied."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from optrove.model.hidden import VECTORS
from optrove.model.records import DeviceKind
from optrove.report.runs_text import SHORT_ID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optrove.model.records import Attempt, SweepModule


def replay_command(attempt: Attempt, store: str | None = None) -> str:
    """Return the command that replays a case of a trove as it was executed."""
    return shlex.join(["optrove", "replay", attempt.case_id[:SHORT_ID], *_where(attempt, store)])


def again_command(
    op: str, attempt: Attempt, modules: Iterable[SweepModule] = (), store: str | None = None
) -> str:
    """Return the command for a case or a vector; ``modules`` are those of the sweep."""
    if not op.startswith(VECTORS):
        return replay_command(attempt, store)
    name = op.removeprefix(VECTORS)
    paths = [each.path for each in modules if name.startswith(f"{each.name}.")]
    module = paths[0] if paths else name.rpartition(".")[0]
    words = ["optrove", "sweep", module, "--vector-id", attempt.case_id[:SHORT_ID]]
    return shlex.join([*words, *_where(attempt, store)])


def _where(attempt: Attempt, store: str | None) -> list[str]:
    words: list[str] = []
    if attempt.device_kind in (DeviceKind.SHADOW, DeviceKind.HARDWARE):
        words += ["--device", attempt.device_kind.value]
    if attempt.board is not None:
        words += ["--board", attempt.board]
    return words if store is None else [*words, "--store", store]
