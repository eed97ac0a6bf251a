"""The shadow computes what ttnn's kernels compute, as far as that was measured."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FIGURES = json.loads((ROOT / "tests" / "truth" / "figures.json").read_text())["cases"]

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def measured(hidden_torch):
    """Return the agreement of each case, measured in a process with a board of its own."""
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    visible = os.pathsep.join(place for place in places if "without_torch" not in place)
    tool = ROOT / "benchmarks" / "bench_numerics.py"
    done = subprocess.run(
        [sys.executable, tool, "--arch", "wormhole", "--numerics", "hardware"],
        env=os.environ | {"PYTHONPATH": visible},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = map(json.loads, done.stdout.splitlines())
    return {line["id"]: line["hardware"] for line in lines}


@pytest.mark.parametrize("case", FIGURES)
def test_the_shadow_agrees_with_the_kernels(measured, case):
    found, least = measured[case], FIGURES[case]
    assert not isinstance(found, str), found
    assert found["equal"] >= least["equal"]
    assert found["pcc"] >= least["pcc"]


def test_the_tool_goes_on_after_a_case_that_the_simulator_ends(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import bench_numerics as tool

    names = [f"add.{number}" for number in range(4)]
    lines = [json.dumps({"id": name, "arch": "wormhole"}) for name in names]
    (tmp_path / "manifest.jsonl").write_text("\n".join(lines))
    refusal = "[9] ERROR: UntestedFunctionality: sfpu_mad"
    answered = {"0": [names[0], refusal], "2": [names[2], names[3]]}

    def run(command, **_):
        words = answered[command[-1]]
        lines = [x if x == refusal else json.dumps({"id": x, "kernels": {}}) for x in words]
        status = int(refusal in words)
        return subprocess.CompletedProcess(command, status, "\n".join(["[1] talk", *lines]))

    monkeypatch.setattr(tool.subprocess, "run", run)
    found = tool.answers(tmp_path, "wormhole", "kernels", "")
    assert found == {names[0]: {}, names[1]: refusal, names[2]: {}, names[3]: {}}


def test_fidelity_and_accumulation_change_the_product():
    import torch

    from optrove.frameworks.ttnn.shadow.arithmetic import MatrixUnit

    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(64, 64, generator=generator).bfloat16().float() for _ in range(2))
    exact = left.double() @ right.double()
    errors = {
        (phases, wide): float((MatrixUnit(phases, wide).matmul(left, right, 64) - exact).std())
        for phases in (1, 2, 4)
        for wide in (False, True)
    }
    assert errors[1, True] > errors[2, True] > errors[4, True]
    assert errors[4, False] > errors[4, True]


def test_many_products_are_summed_with_the_error_of_few(monkeypatch):
    import torch

    from optrove.frameworks.ttnn.shadow import arithmetic

    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(64, 64, generator=generator).bfloat16().float() for _ in range(2))
    exact = left.double() @ right.double()
    for phases in (1, 2, 4):
        unit = arithmetic.MatrixUnit(phases)
        one_by_one = float((unit.matmul(left, right, 64) - exact).std())
        with monkeypatch.context() as patch:
            patch.setattr(arithmetic, "EXACT_PRODUCTS", 0)
            stepwise = float((unit.matmul(left, right, 64) - exact).std())
        assert stepwise == pytest.approx(one_by_one, rel=0.05)


def test_the_golden_of_gelu_has_numbers_in_fast_mode(ttnn, report, make):
    import torch

    values = ttnn.gelu(make(), fast_and_approximate_mode=True)
    assert torch.equal(ttnn.to_torch(values).float(), torch.zeros(32, 32))


def test_the_golden_of_gelu_has_limits_at_infinity():
    import torch

    from optrove.frameworks.ttnn.shadow.golden_overrides import gelu

    limits = gelu(torch.tensor([torch.inf, -torch.inf]))
    assert limits.tolist() == [torch.inf, 0.0]


def test_inverses_are_near_on_both_architectures():
    import torch

    from optrove.frameworks.ttnn.shadow import vector_unit

    values = torch.tensor([1.0, -1.5, 3.0e-38, 1.9921875, 1.0e30])
    for inverse in (vector_unit.inverse_of_wormhole, vector_unit.inverse_of_blackhole):
        for steps, error in ((1, 2e-4), (2, 3e-7)):
            assert torch.allclose(
                inverse(values, steps) * values, torch.ones(5), rtol=0, atol=error
            )


def test_unknown_numerics_are_refused():
    from optrove.errors import BadSetting
    from optrove.settings import find_numerics

    with pytest.raises(BadSetting, match="hardware or ideal"):
        find_numerics("exact")


def test_a_program_of_a_matmul_has_its_activation():
    from types import SimpleNamespace

    import torch

    from optrove.frameworks.ttnn.shadow.hardware import CallFacts, HardwareCall, matrix_product

    gelu = SimpleNamespace(op_type=SimpleNamespace(name="GELU"), params=[1.0])
    program = SimpleNamespace(in0_block_w=1, fused_activation=gelu)
    facts = CallFacts("wormhole_b0", 8, ("BFLOAT16",) * 2, True, None, program, False)
    values = torch.randn(32, 32, generator=torch.Generator().manual_seed(0)).bfloat16().float()
    found = matrix_product(HardwareCall(facts, "BFLOAT16", (values, values), {}))
    expected = torch.nn.functional.gelu(values @ values)
    assert torch.corrcoef(torch.stack([found.flatten(), expected.flatten()]))[0, 1] > 0.999
