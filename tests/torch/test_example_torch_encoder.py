"""The classifier in plain PyTorch is traced as it trains, and every case replays as itself."""

import pytest

from example_runs import EXAMPLES, replayed, run, traced

pytestmark = [pytest.mark.torch, pytest.mark.slow]

TEST = "torch_encoder/test_torch_encoder.py"

WRONG_WEIGHT = """
import pytest

@pytest.fixture(autouse=True)
def wrong_weight(monkeypatch):
    import torch_encoder_reference

    classify = torch_encoder_reference.classify

    def spoiled(weights, *others):
        return classify(weights | {"head.weight": -weights["head.weight"]}, *others)

    monkeypatch.setattr(torch_encoder_reference, "classify", spoiled)
"""


def test_every_case_replays_as_itself(tmp_path):
    answer = traced(tmp_path, TEST, "--backend", "torch")
    assert answer["tests"] == {"passed": 6}
    ops = {each["op"] for each in replayed(tmp_path)}
    assert "torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default" in ops
    assert "torch.ops.aten.native_layer_norm_backward.default" in ops


def test_a_wrong_weight_is_found_out(tmp_path):
    (tmp_path / "wrong_weight.py").write_text(WRONG_WEIGHT)
    plugin = ("-p", "wrong_weight", "-o", f"pythonpath={tmp_path}", "-p", "no:cacheprovider")
    done = run(tmp_path, "pytest", str(EXAMPLES / TEST), "-k", "pcc", *plugin)
    assert done.returncode == 1, done.stdout
    assert "2 failed" in done.stdout
