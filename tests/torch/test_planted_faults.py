"""Wrong kernels of torch are found by a replay, and right ones pass."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]

PLANTED = Path(__file__).parent.parent / "support" / "planted_faults.py"

MISSED = {
    "mm: an offset of 0.05": "in bfloat16, a unit of the last place of most elements is as large",
    "sum.dim_IntList: adds in bfloat16": "of bfloat16 numbers, as many kernels do",
    "add.Tensor: ignores alpha": "one of its cases has alpha=1, which is not wrong",
}
"""Faults that some of their cases do not show, and why; in another one each is found."""


@pytest.fixture(scope="module")
def verdicts():
    done = subprocess.run(
        [sys.executable, str(PLANTED)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    return json.loads(done.stdout)


def test_every_planted_fault_is_found(verdicts):
    planted = {words: found for words, found in verdicts.items() if ": unchanged" not in words}
    assert len(planted) >= 60
    assert len({words.partition(":")[0] for words in planted}) >= 25
    assert not [words for words, found in planted.items() if not any(found)]
    assert {words for words, found in planted.items() if None in found} <= MISSED.keys()
    raised = [words for words, found in planted.items() if any("Error" in str(x) for x in found)]
    assert not raised


def test_right_kernels_pass_beside_the_imports(verdicts):
    right = {words: found for words, found in verdicts.items() if ": unchanged" in words}
    assert not {words: found for words, found in right.items() if any(found)}
