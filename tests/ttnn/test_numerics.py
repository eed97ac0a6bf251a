"""The shadow computes what ttnn's kernels compute, as far as that was measured."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest

from parts import C_EXTENSION, leave_out

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
    if find_spec("optrove.frameworks._matrix_unit") is None:
        least = least.get("without_extension", least)
    assert not isinstance(found, str), found
    assert found["equal"] >= least["equal"]
    assert found["pcc"] >= least["pcc"]


def test_a_form_counts_as_compared_only_where_the_shadow_agreed_with_the_kernels(hidden_torch):
    from optrove.frameworks.ttnn.shadow.hardware import CallFacts, agrees_with_kernels

    facts = CallFacts("wormhole_b0", 8, ("BFLOAT16",), True, None, None, False)
    lines = (ROOT / "tests" / "truth" / "manifest.jsonl").read_text().splitlines()
    cases = {case["id"]: case for case in map(json.loads, lines)}
    inside = []
    for name, case in cases.items():
        shapes = [shape for key, shape in case["shapes"].items() if key.startswith("input")]
        if name in FIGURES and agrees_with_kernels(case["op"], facts, shapes):
            inside.append(name)
            assert FIGURES[name]["equal"] > 0.99, name
    assert len(inside) > len(FIGURES) / 2
    assert not agrees_with_kernels("ttnn.layer_norm", facts, [(1, 1, 32, 96)])
    assert not agrees_with_kernels("ttnn.matmul", facts, [(1, 1, 32, 2048), (2048, 32)])


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


def test_the_extension_and_torch_sum_the_same_products():
    import torch

    from optrove.frameworks.ttnn.shadow import arithmetic

    if arithmetic._extension is None:
        leave_out(C_EXTENSION, "optrove.frameworks._matrix_unit is not built")
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape):
        spread = torch.randint(-9, 10, shape, generator=generator)
        found = torch.randn(shape, generator=generator) * 2.0**spread
        return arithmetic.nineteen_bits(found.masked_fill_(found.abs() < 2.0**-8, 0.0))

    for rows, inner, columns in ((1, 16, 1), (5, 40, 19), (33, 160, 8)):
        for phases, wide in product((1, 2, 3, 4), (False, True)):
            left, right = numbers(2, rows, inner), numbers(inner, columns)
            unit = arithmetic.MatrixUnit(phases, wide)
            total = arithmetic.half_away(numbers(2, rows, columns))
            expected = unit._by_torch(left, right, total)
            assert torch.equal(unit._by_extension(left, right, total.clone()), expected)


def test_the_extension_reads_infinity_as_the_matrix_unit_does():
    import torch

    from optrove.frameworks.ttnn.shadow import arithmetic

    if arithmetic._extension is None:
        leave_out(C_EXTENSION, "optrove.frameworks._matrix_unit is not built")
    left, right = torch.ones(2, 16), torch.full((16, 2), 2.0**-20)
    left[0, 3], left[1, 5] = torch.inf, torch.nan
    unit, total = arithmetic.MatrixUnit(), torch.zeros(2, 2)
    expected = unit._by_torch(*arithmetic.registers(left, right), total)
    assert torch.equal(unit._by_extension(left, right, total), expected)


def test_the_extension_refuses_buffers_of_other_sizes():
    import numpy as np

    if find_spec("optrove.frameworks._matrix_unit") is None:
        leave_out(C_EXTENSION, "optrove.frameworks._matrix_unit is not built")
    from optrove.frameworks import _matrix_unit as extension

    left, right, total = (np.zeros(shape, np.float32) for shape in ((2, 16), (16, 8), (2, 8)))
    with pytest.raises(ValueError, match="right has 512 bytes"):
        extension.add_product(left, right, total, 2, 16, 9, 0, 9, 4, False)
    with pytest.raises(ValueError, match="columns 0 to 9 of 8"):
        extension.add_product(left, right, total, 2, 16, 8, 0, 9, 4, False)


@pytest.mark.parametrize("groups", [1, 4])
def test_a_large_convolution_has_the_bits_of_its_fidelity(monkeypatch, groups):
    import torch

    from optrove.frameworks.ttnn.shadow import matrix_kernels
    from optrove.frameworks.ttnn.shadow.hardware import CallFacts, HardwareCall

    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(1, 1, 2 * 6 * 6, 8, generator=generator).bfloat16().float()
    filters = torch.randn(8, 8 // groups, 3, 3, generator=generator).bfloat16().float()
    sizes = {"batch_size": 2, "input_height": 6, "input_width": 6, "in_channels": 8}
    keywords = {"input_tensor": rows, "weight_tensor": filters, "padding": (1, 1), **sizes}
    images = rows.reshape(2, 6, 6, 8).permute(0, 3, 1, 2).double()
    exact = torch.nn.functional.conv2d(images, filters.double(), padding=1, groups=groups)
    exact = exact.permute(0, 2, 3, 1).flatten(0, 2)

    def error(fidelity):
        configuration = SimpleNamespace(
            math_fidelity=SimpleNamespace(name=fidelity),
            fp32_dest_acc_en=True,
            packer_l1_acc=False,
            math_approx_mode=False,
        )
        facts = CallFacts("wormhole_b0", 8, ("BFLOAT16",) * 2, True, configuration, None, False)
        call = HardwareCall(facts, "BFLOAT16", (), {**keywords, "groups": groups})
        (found,) = matrix_kernels.convolution(call)
        return float((found[0, 0] - exact).std())

    small = {fidelity: error(fidelity) for fidelity in ("LoFi", "HiFi2", "HiFi4")}
    monkeypatch.setattr(matrix_kernels, "EXACT_PRODUCTS", 0)
    for fidelity, expected in small.items():
        assert error(fidelity) == pytest.approx(expected, rel=0.02)


def test_attention_to_many_keys_has_the_error_of_few(monkeypatch):
    import torch

    from optrove.frameworks.ttnn.shadow import matrix_kernels
    from optrove.frameworks.ttnn.shadow.hardware import CallFacts, HardwareCall

    generator = torch.Generator().manual_seed(0)
    heads = [torch.randn(1, 2, 96, 64, generator=generator).bfloat16().float() for _ in range(3)]
    facts = CallFacts("wormhole_b0", 8, ("BFLOAT16",) * 3, True, None, None, False)
    exact = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True)

    def error():
        call = HardwareCall(facts, "BFLOAT16", tuple(heads), {"is_causal": True})
        return float((matrix_kernels.attention(call) - exact).std())

    expected = error()
    monkeypatch.setattr(matrix_kernels, "EXACT_PRODUCTS", 0)
    assert error() == pytest.approx(expected, rel=0.1)


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
    import torch

    from optrove.frameworks.ttnn.shadow.hardware import CallFacts, HardwareCall, matrix_product

    gelu = SimpleNamespace(op_type=SimpleNamespace(name="GELU"), params=[1.0])
    program = SimpleNamespace(in0_block_w=1, fused_activation=gelu)
    facts = CallFacts("wormhole_b0", 8, ("BFLOAT16",) * 2, True, None, program, False)
    values = torch.randn(32, 32, generator=torch.Generator().manual_seed(0)).bfloat16().float()
    found = matrix_product(HardwareCall(facts, "BFLOAT16", (values, values), {}))
    expected = torch.nn.functional.gelu(values @ values)
    assert torch.corrcoef(torch.stack([found.flatten(), expected.flatten()]))[0, 1] > 0.999
