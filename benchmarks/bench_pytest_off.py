"""What the pytest plugin costs when no flag asks for it: whole runs of a ttnn test, in turns."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 7
TEST = """
import optrove
def test_ops():
    with optrove.mock_board("n150"):
        import ttnn
        device = ttnn.open_device(device_id=0)
        a = ttnn.rand([64, 64], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
        for _ in range(2000):
            ttnn.relu(ttnn.add(a, a))
        ttnn.close_device(device)
"""


def seconds(file: Path, *options: str) -> float:
    """Return the time of one run of pytest."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(file)]
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=file.parent)  # noqa: S603 - our own words
    return time.perf_counter() - start


def main() -> None:
    """Measure with the plugin and without it."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "test_ops.py"
        file.write_text(TEST)
        seconds(file)
        turns = [(seconds(file, "-p", "no:optrove"), seconds(file)) for _ in range(ROUNDS)]
    without, installed = (statistics.median(found) for found in zip(*turns, strict=True))
    spread = max(found[0] for found in turns) / min(found[0] for found in turns)
    print(f"without the plugin {without:.2f} s, with it and no flag {installed:.2f} s")
    print(
        f"ratio {installed / without:.3f}; runs without it differ by {spread:.3f} among themselves"
    )


if __name__ == "__main__":
    main()
