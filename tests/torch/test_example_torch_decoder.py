"""The decoder in plain PyTorch is traced as it generates and trains, and every case replays."""

import pytest

from example_runs import replayed, traced

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def test_every_case_replays_as_itself(tmp_path):
    told = traced(tmp_path, "torch_decoder/test_torch_decoder.py", "--backend", "torch")
    assert told["tests"]["passed"] >= 2
    ops = {each["op"] for each in replayed(tmp_path)}
    assert "torch.ops.aten.argmax.default" in ops
    assert "torch.ops.aten.embedding_dense_backward.default" in ops
