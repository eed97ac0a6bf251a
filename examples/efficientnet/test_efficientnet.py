"""Test the EfficientNet as a model's own test would: open a device, run, compare."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import efficientnet_model as model
import efficientnet_weights as example
import pytest
import ttnn

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Variant:
    """A network in one dtype, and how well it has to correlate with float32."""

    architecture: str
    dtype: Any
    expected_pcc: float

    def __str__(self) -> str:
        return f"{self.architecture}-{self.dtype.name.lower()}"


@dataclass(frozen=True, slots=True)
class Outputs:
    """The logits of a first run, and of a second one with weights that the first laid out."""

    variant: Variant
    first: Any
    second: Any


VARIANTS = (
    Variant("small", ttnn.bfloat16, 0.9999),
    Variant("small", ttnn.bfloat8_b, 0.999),
    Variant("b0", ttnn.bfloat8_b, 0.998),
)


@pytest.fixture(scope="module")
def device() -> Iterator[Any]:
    """Open the first device of the machine, with the L1 that sliding windows take."""
    opened = ttnn.open_device(device_id=0, l1_small_size=model.L1_SMALL)
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


@pytest.fixture(scope="module", params=VARIANTS, ids=str)
def outputs(device: Any, request: pytest.FixtureRequest) -> Outputs:
    """Run a variant once; the small ones once more, with the weights as they are by then."""
    variant = request.param
    architecture = example.ARCHITECTURES[variant.architecture]
    network = model.EfficientNet(example.make_weights(architecture), device, variant.dtype)
    image = model.image_to_device(example.make_image(architecture), device)
    first = network(image, architecture.image)
    small = architecture is example.SMALL
    return Outputs(variant, first, network(image, architecture.image) if small else first)


def test_output_spec(outputs: Outputs) -> None:
    """There is a row of logits in the dtype of the network; their numbers are not looked at."""
    classes = example.ARCHITECTURES[outputs.variant.architecture].classes
    for logits in (outputs.first, outputs.second):
        assert tuple(logits.shape) == (1, 1, 1, classes)
        assert logits.dtype == outputs.variant.dtype
        assert logits.layout == ttnn.TILE_LAYOUT
        assert logits.memory_config() == ttnn.DRAM_MEMORY_CONFIG


def test_pcc_with_torch(
    outputs: Outputs, torch_on_a_device_that_computes: Any, record_property: Any
) -> None:
    """The logits correlate with the float32 reference as far as the dtype allows."""
    import efficientnet_reference as reference  # needs torch, which the spec tests do without

    torch = torch_on_a_device_that_computes
    architecture = example.ARCHITECTURES[outputs.variant.architecture]
    expected = reference.efficientnet(
        example.make_image(architecture), example.make_weights(architecture)
    )
    for name, logits in (("pcc", outputs.first), ("second_pcc", outputs.second)):
        actual = ttnn.to_torch(logits).to(torch.float32).reshape(1, -1)
        pcc = reference.pcc(expected, actual)
        record_property(name, pcc)
        assert pcc >= outputs.variant.expected_pcc
