"""Test the encoder block as a model's own test would: open a device, run, compare."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import encoder
import pytest
import ttnn
import weights as example

if TYPE_CHECKING:
    from collections.abc import Iterator

SHAPE = (example.BATCH, example.SEQUENCE, example.HIDDEN)
EXPECTED_PCC = {ttnn.bfloat16: 0.9999, ttnn.bfloat8_b: 0.9998, ttnn.bfloat4_b: 0.98}

variants = pytest.mark.parametrize("variant", encoder.VARIANTS)
dtypes = pytest.mark.parametrize("dtype", EXPECTED_PCC, ids=lambda dtype: dtype.name.lower())


@pytest.fixture(scope="module")
def device() -> Iterator[Any]:
    """Open the first device of the machine."""
    opened = ttnn.open_device(device_id=0)
    yield opened
    ttnn.close_device(opened)


@pytest.fixture(scope="module")
def torch_on_a_device_that_computes(device: Any) -> Any:
    """Return torch; skip on a mock device that validates calls and runs no kernel.

    Real hardware is never skipped: if it cannot add, the comparison below has to fail.
    """
    torch = pytest.importorskip("torch", reason="the reference needs torch: no PCC was computed")
    ones = ttnn.from_torch(
        torch.ones(32, 32), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device
    )
    mocked = "TT_METAL_MOCK_CLUSTER_DESC_PATH" in os.environ  # noqa: TID251 - tt-metal's own switch
    if mocked and not torch.all(ttnn.to_torch(ttnn.add(ones, ones)) == 2):
        pytest.skip("1 + 1 is not 2 on this mock device: no PCC was computed, only specs hold")
    return torch


def run(device: Any, variant: str, dtype: Any) -> Any:
    """Run one variant of the block with weights of the given dtype."""
    parameters = encoder.load(example.make_weights(), device, dtype)
    hidden = encoder.to_device(example.make_input(), device)
    return encoder.VARIANTS[variant](hidden, parameters)


@variants
@dtypes
def test_output_spec(device: Any, variant: str, dtype: Any) -> None:
    """The output has the form of the input; its numbers are not looked at."""
    output = run(device, variant, dtype)
    assert tuple(output.shape) == SHAPE
    assert output.dtype == ttnn.bfloat16
    assert output.layout == ttnn.TILE_LAYOUT
    assert output.memory_config() == ttnn.DRAM_MEMORY_CONFIG


@variants
@dtypes
def test_pcc_with_torch(
    device: Any,
    variant: str,
    dtype: Any,
    torch_on_a_device_that_computes: Any,
    record_property: Any,
) -> None:
    """The output correlates with the float32 reference as far as the dtype allows."""
    import reference  # needs torch, which the spec tests do without

    output = ttnn.to_torch(run(device, variant, dtype)).to(torch_on_a_device_that_computes.float32)
    expected = reference.encoder(example.make_input(), example.make_weights())
    pcc = reference.pcc(expected, output)
    record_property("pcc", pcc)
    assert pcc >= EXPECTED_PCC[dtype]
