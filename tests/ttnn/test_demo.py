import subprocess
import sys

import pytest

from example_runs import users_environment

pytestmark = [pytest.mark.ttnn, pytest.mark.slow]

# Python imports this before anything else: no process of the demo finds torch.
NO_TORCH = "import sys\nsys.modules['torch'] = None\n"


def test_the_demo_needs_no_torch_and_leaves_a_trove_and_a_report(tmp_path):
    hiding, home = tmp_path / "hiding", tmp_path / "home"
    hiding.mkdir()
    home.mkdir()
    (hiding / "sitecustomize.py").write_text(NO_TORCH)
    done = subprocess.run(
        [sys.executable, "-m", "optrove", "demo"],
        cwd=home,
        env={**users_environment(), "PYTHONPATH": str(hiding)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No numerics without torch" in done.stdout
    assert "$ optrove check-board p300 --model llama" in done.stdout
    assert "equal hash" in done.stdout
    assert "all good" in done.stdout
    assert [path.name for path in home.iterdir()] == [".optrove"]
    left = {path.name for path in (home / ".optrove").iterdir()}
    assert {"demo.db", "demo.html"} <= left
    assert left <= {"demo.db", "demo.db-shm", "demo.db-wal", "demo.db.journals", "demo.html"}
