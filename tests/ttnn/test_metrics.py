import pytest
import torch

from optrove import metrics

pytestmark = pytest.mark.ttnn


def test_ttnn_tensors_are_compared_by_their_numbers(ttnn):
    numbers = torch.randn(32, 64, generator=torch.Generator().manual_seed(0))
    tensor = ttnn.from_torch(numbers, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
    assert 0.9999 < metrics.pcc(numbers, tensor) < 1.0
    assert metrics.pcc(tensor, tensor) == 1.0
    assert metrics.assert_with_pcc(numbers, tensor)[0]


@pytest.mark.parametrize(("dtype", "bits"), [("bfloat16", 7), ("bfloat8_b", 7), ("bfloat4_b", 3)])
def test_ulp_is_measured_in_ttnns_dtype(ttnn, dtype, bits):
    ones = torch.ones(32, 32)
    tensor = ttnn.from_torch(ones, dtype=getattr(ttnn, dtype), layout=ttnn.TILE_LAYOUT)
    assert metrics.ulp(tensor, ones * (1.0 + 2.0**-bits)) == 1.0
