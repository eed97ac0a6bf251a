"""What a mock board costs: import, open and one op, cold and warm, beside a bare import of ttnn."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

REPEATS = 5
BARE = "import ttnn"
OPEN = """
import optrove, sys
with optrove.mock_board(sys.argv[1]):
    import ttnn
    device = ttnn.open_device(device_id=0)
    tile = ttnn.zeros([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    ttnn.matmul(tile, tile)
    ttnn.close_device(device)
"""


def seconds(script: str, board: str, cache: str) -> float:
    """Return the wall-clock time of one process that runs the script."""
    environment = os.environ | {"OPTROVE_CACHE": cache}  # noqa: TID251 - a process of its own
    start = time.perf_counter()
    command = [sys.executable, "-c", script, board]
    subprocess.run(command, env=environment, check=True, capture_output=True)  # noqa: S603 - our own script
    return time.perf_counter() - start


def main() -> None:
    """Print medians, and their ratio to the bare import, measured in turns."""
    for board in ("n300", "galaxy"):
        bare, cold, warm = [], [], []
        for _ in range(REPEATS):
            with tempfile.TemporaryDirectory() as cache:
                bare.append(seconds(BARE, board, cache))
                cold.append(seconds(OPEN, board, cache))
                warm.append(seconds(OPEN, board, cache))
        base = statistics.median(bare)
        for name, times in (("import ttnn", bare), ("cold cache", cold), ("warm cache", warm)):
            median = statistics.median(times)
            print(f"{board:8} {name:12} {median:6.2f} s  {median / base:5.2f}x")


if __name__ == "__main__":
    main()
