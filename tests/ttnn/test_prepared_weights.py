"""Convolutions lay their weights out for the device; the shadow knows what they were before."""

import pytest
import torch

from optrove.errors import NoNumbers
from optrove.frameworks.ttnn.ops import op_of, ops_with
from optrove.frameworks.ttnn.shadow.prepared_weights import (
    PREPARE_FUNCTIONS,
    plain_shapes,
)
from optrove.model.values import Int, List, NumpyPlacement, TensorSpec, TtnnPlacement

pytestmark = [pytest.mark.ttnn, pytest.mark.torch]

INPUTS, OUTPUTS, SIZE = 32, 64, 8
SIZES = {
    "in_channels": INPUTS,
    "out_channels": OUTPUTS,
    "batch_size": 1,
    "input_height": SIZE,
    "input_width": SIZE,
    "kernel_size": (1, 1),
    "stride": (1, 1),
    "padding": (0, 0),
    "groups": 1,
}


@pytest.fixture
def numbers():
    generator = torch.Generator().manual_seed(0)
    shapes = ((1, 1, SIZE * SIZE, INPUTS), (OUTPUTS, INPUTS, 1, 1), (1, 1, 1, OUTPUTS))
    return [torch.randn(shape, generator=generator) for shape in shapes]


@pytest.fixture
def image(ttnn, device, report, numbers):
    return ttnn.from_torch(numbers[0], ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)


@pytest.fixture
def convolve(ttnn, device):
    """Convolve, and return all that comes back."""

    def convolve(image, weight, bias, dtype, **sizes):
        return ttnn.conv2d(
            input_tensor=image,
            weight_tensor=weight,
            bias_tensor=bias,
            device=device,
            conv_config=ttnn.Conv2dConfig(weights_dtype=dtype),
            dtype=ttnn.bfloat16,
            return_output_dim=True,
            return_weights_and_bias=True,
            **SIZES | sizes,
        )

    return convolve


def rounded(ttnn, numbers, dtype):
    """Numbers as tiles of a dtype hold them, channels last."""
    return ttnn.to_torch(ttnn.from_torch(numbers, dtype, layout=ttnn.TILE_LAYOUT)).float()


@pytest.mark.parametrize("name", ["bfloat16", "bfloat4_b"])
def test_weights_count_as_the_dtype_holds_them_plain_or_laid_out(
    ttnn, report, numbers, image, convolve, name
):
    dtype = getattr(ttnn, name)
    pixels, weight, bias = numbers
    plain = [ttnn.from_torch(each, ttnn.float32) for each in (weight, bias)]
    first, sizes, laid_out = convolve(image, *plain, dtype)
    second, *_ = convolve(image, *laid_out, dtype)
    filters = rounded(ttnn, weight.reshape(OUTPUTS, INPUTS).T.contiguous(), dtype)
    exact = pixels.bfloat16().float() @ filters + rounded(ttnn, bias, dtype)
    assert tuple(sizes) == (SIZE, SIZE)
    for output in (first, second):
        torch.testing.assert_close(ttnn.to_torch(output), exact.bfloat16())
    assert report.computed["ttnn.conv2d"] == 2
    assert not report.missing


def test_a_depthwise_weight_shares_its_exponent_with_no_other_channel(
    ttnn, numbers, image, convolve
):
    weight = torch.logspace(0, -31, INPUTS, base=2).reshape(INPUTS, 1, 1, 1)
    plain = ttnn.from_torch(weight, ttnn.float32)
    sizes = {"groups": INPUTS, "out_channels": INPUTS}
    output, *_ = convolve(image, plain, None, ttnn.bfloat4_b, **sizes)
    exact = numbers[0].bfloat16().float() * weight.flatten()
    torch.testing.assert_close(ttnn.to_torch(output), exact.bfloat16())


def test_laid_out_weights_have_no_numbers_to_others(ttnn, numbers, image, convolve):
    plain = [ttnn.from_torch(each, ttnn.float32) for each in numbers[1:]]
    *_, (weight, _) = convolve(image, *plain, ttnn.bfloat16)
    with pytest.raises(NoNumbers, match="laid out for the device"):
        ttnn.to_torch(weight)
    with pytest.raises(NoNumbers, match=r"an input has no numbers since ttnn\.conv2d"):
        ttnn.to_torch(ttnn.relu(weight))


def test_weights_that_were_laid_out_beforehand_are_known(
    ttnn, device, report, numbers, image, convolve
):
    pixels, weight, bias = numbers
    config = ttnn.Conv2dConfig(weights_dtype=ttnn.bfloat16)
    options = {
        "input_memory_config": image.memory_config(),
        "input_layout": image.layout,
        "device": device,
        "dilation": (1, 1),
        "conv_config": config,
        "input_dtype": ttnn.bfloat16,
        **SIZES,
    }
    host = [ttnn.from_torch(each, ttnn.float32) for each in (weight, bias)]
    filters = ttnn.prepare_conv_weights(
        weight_tensor=host[0], weights_format="OIHW", has_bias=True, **options
    )
    laid_out = ttnn.prepare_conv_bias(bias_tensor=host[1], **options)
    output, *_ = convolve(image, filters, laid_out, ttnn.bfloat16)
    exact = pixels.bfloat16().float() @ weight.bfloat16().float().reshape(OUTPUTS, INPUTS).T
    expected = (exact + bias.bfloat16().float()).bfloat16()
    torch.testing.assert_close(ttnn.to_torch(output), expected)


def test_the_tables_name_what_ttnn_has(ttnn):
    operations = {each.python_fully_qualified_name for each in ttnn.query_registered_operations()}
    assert ops_with("weights") <= operations
    for function, (op, argument) in PREPARE_FUNCTIONS.items():
        assert hasattr(ttnn, function)
        assert argument in op_of(op).weights


def recorded(shape, storage):
    placement = TtnnPlacement(shape, "TILE", None, storage, None, None, None, None)
    return TensorSpec(shape, "ttnn.bfloat8_b", placement, 0, 0)


def test_only_weights_on_the_device_in_another_shape_were_laid_out():
    sizes = {"in_channels": Int(8), "out_channels": Int(16), "groups": Int(4)}
    kernel = {"kernel_size": List((Int(3), Int(3)))}
    weight = recorded((1, 1, 288, 32), "device")
    arguments = {**sizes, **kernel, "weight_tensor": weight}
    assert plain_shapes("ttnn.conv2d", arguments) == {"weight_tensor": (16, 2, 3, 3)}
    assert plain_shapes("ttnn.matmul", arguments) == {}
    assert plain_shapes("ttnn.conv2d", {**sizes, "weight_tensor": weight}) == {}
    for other in (
        recorded((16, 2, 3, 3), "device"),
        recorded((1, 1, 288, 32), "host"),
        TensorSpec((1, 1, 288, 32), "float32", NumpyPlacement(()), 0, 0),
    ):
        assert plain_shapes("ttnn.conv2d", {**arguments, "weight_tensor": other}) == {}
