"""Begin the trace of a spawned process; run as a file, before the process has its ``sys.path``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

GIVEN: Any = globals().get("GIVEN")


def _begin() -> None:
    root = str(Path(__file__).parents[2])
    if root not in sys.path:
        sys.path.append(root)
    from optrove.tracing.children import begin_spawned

    begin_spawned(GIVEN)


if __name__ == "optrove_spawned":
    _begin()
