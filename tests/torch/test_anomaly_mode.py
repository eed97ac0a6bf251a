"""What anomaly mode prints of a traced program is what it prints of the program alone."""

import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch

PROGRAM = """
import torch


def root(x):
    return torch.nn.functional.softplus(torch.sqrt(x))


with torch.autograd.set_detect_anomaly(True):
    x = torch.tensor([-1.0], requires_grad=True)
    try:
        root(x).backward()
    except RuntimeError as error:
        print(error)
"""


def printed(directory, *command):
    done = subprocess.run(
        [sys.executable, *command, "program.py"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "returned nan values" in done.stdout
    found = re.search(r"Traceback of forward call.*?\(Triggered", done.stderr, re.DOTALL)
    assert found, done.stderr
    return found.group()


@pytest.mark.parametrize("level", ["aten", "api"])
def test_the_traceback_of_the_forward_call_has_no_frames_of_ours(tmp_path, level):
    (tmp_path / "program.py").write_text(PROGRAM)
    options = "--backend", "torch", "--level", level, "--journal", "journal"
    alone = printed(tmp_path)
    assert alone.count("program.py") == 2
    assert printed(tmp_path, "-m", "optrove.tracing.script", *options) == alone
