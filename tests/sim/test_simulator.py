"""Real kernels on the simulator of OPTROVE_SIM; each board in its own process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from optrove.frameworks.ttnn.board.simulator import LIBRARIES
from optrove.frameworks.ttnn.board.table import BOARDS

pytestmark = [pytest.mark.sim, pytest.mark.slow]

TESTS = """
import pytest, torch, ttnn

@pytest.fixture
def device():
    device = ttnn.open_device(device_id=0)
    yield device
    ttnn.close_device(device)

def test_matmul(device):
    torch.manual_seed(0)
    a, b = torch.randn(64, 64).bfloat16(), torch.randn(64, 96).bfloat16()
    live = [ttnn.from_torch(x, layout=ttnn.TILE_LAYOUT, device=device) for x in (a, b)]
    found = ttnn.to_torch(ttnn.relu(ttnn.matmul(*live))).float()
    expected = torch.relu(a.float() @ b.float())
    assert torch.corrcoef(torch.stack([found.flatten(), expected.flatten()]))[0, 1] > 0.999
"""


def optrove(*words, **options):
    command = [sys.executable, "-m", "optrove", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@pytest.fixture(params=["n150", "p150"])
def board(request):
    library = LIBRARIES[BOARDS[request.param].arch]
    if not Path(os.environ["OPTROVE_SIM"], library).exists():
        pytest.skip(f"OPTROVE_SIM has no {library}")
    return request.param


def test_a_traced_test_runs_on_the_simulator_and_replays_there(board, tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    trove = tmp_path / "trove.db"
    traced = optrove(
        "trace", "test_it.py", "--sim", board, "--store", trove, "--", "-q", cwd=tmp_path
    )
    assert traced.returncode == 0, traced.stdout + traced.stderr
    assert f"on sim {board}" in traced.stdout.replace("simulated", "sim")
    words = ("replay", "--all", "--device", "sim", "--board", board, "--store", trove, "--json")
    for more in ((), ("--scale", "small")):
        replayed = optrove(*words, *more, cwd=tmp_path)
        answer = json.loads(replayed.stdout)
        assert answer["counts"] == {"passed": answer["planned"]}, replayed.stdout
        assert {each["device"] for each in answer["cases"]} == {"sim"}
        assert any("scaled_from" in each for each in answer["cases"]) is bool(more)
