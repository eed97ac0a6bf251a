"""Replays find wrong kernels of ttnn, and right ones pass: on the shadow and on a board."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from optrove.model.records import OTHERWISE

pytestmark = [pytest.mark.ttnn, pytest.mark.torch]

SUPPORT = Path(__file__).parent.parent / "support"

IN_THE_LAST_PLACE = "numbers are off by less than four units of the last place, without a bias"
ACCUMULATION = "accumulating 512 products in bfloat16 leaves more, and a bias of about 1 %"

MISSED = {
    "ideal": {
        "matmul: times 1.02": ACCUMULATION,
        "matmul: one tile is 3 % off": ACCUMULATION,
        "matmul: HiFi2 in place of HiFi4": ACCUMULATION,
        "matmul: truncates in place of rounding": IN_THE_LAST_PLACE,
        "narrowed: an exponent for 32 numbers": IN_THE_LAST_PLACE,
    },
    "hardware": {
        "matmul: HiFi2 in place of HiFi4": ACCUMULATION,
        "matmul: truncates in place of rounding": IN_THE_LAST_PLACE,
        "narrowed: an exponent for 32 numbers": IN_THE_LAST_PLACE,
    },
    "held": {"narrowed: an exponent for 32 numbers": IN_THE_LAST_PLACE},
}
"""Faults that are not found, and why."""


def answer(program, *words):
    """Return the JSON that a program of the support folder prints, with torch."""
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    visible = [str(SUPPORT), *(place for place in places if "without_torch" not in place)]
    done = subprocess.run(
        [sys.executable, str(SUPPORT / program), *words],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(visible)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module", params=MISSED)
def verdicts(request, hidden_torch):
    return request.param, answer("planted_device_faults.py", request.param)


def test_no_output_of_ttnn_s_kernels_is_wrong(hidden_torch):
    found = answer("judged_kernels.py", str(SUPPORT.parent / "truth"), "wormhole")
    assert len(found) >= 85
    assert {name: faults for name, faults in found.items() if faults} == {}
    assert [name for name, faults in found.items() if faults is None] == []


def test_every_planted_fault_is_found_but_those_with_a_reason(verdicts):
    numerics, found = verdicts
    planted = {words: cause for words, cause in found.items() if ": unchanged" not in words}
    assert len(planted) >= 60
    assert {words for words, cause in planted.items() if cause is None} == MISSED[numerics].keys()


def test_right_kernels_pass(verdicts):
    _, found = verdicts
    right = {words: cause for words, cause in found.items() if ": unchanged" in words}
    assert len(right) >= 25
    assert not {words: cause for words, cause in right.items() if cause is not None}


def test_a_board_that_is_held_to_the_bits_computes_otherwise_within_the_bounds(verdicts):
    numerics, found = verdicts
    otherwise = {words for words, cause in found.items() if OTHERWISE in (cause or "")}
    within = set(MISSED["hardware"]) - set(MISSED["held"])
    assert otherwise == (within if numerics == "held" else set())


def test_a_verdict_names_the_tile(verdicts):
    _, found = verdicts
    for words in ("matmul: one tile is zero", "transpose: one tile is not transposed"):
        assert "output 0: tile (1, 1): element" in found[words]
        assert found[words].endswith("1 of 16 tiles") or words.startswith("transpose")
    assert (
        "tile (21, 0): element (700, 3)"
        in found["large_matmul: one element of a million has the wrong sign"]
    )
