"""An EfficientNet in ttnn: sharded convolutions, depthwise ones, squeeze and excitation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ttnn

if TYPE_CHECKING:
    from efficientnet_weights import Block, Convolution, Weights

TILE = 32
L1_SMALL = 24576  # what halo and sliding windows take of L1, in bytes
HEIGHT_FROM = 784  # rows of 28x28 pixels: from there on every core gets rows of its own
BLOCK_FROM = 196  # rows of 14x14 pixels: cores get rows and channels


class Convolve:
    """One convolution; the first call lays its weights out for the device, and keeps them."""

    def __init__(self, convolution: Convolution, device: Any, dtype: Any) -> None:
        self._device = device
        self._dtype = dtype
        self._outputs, _, self._kernel, _ = convolution.weight.shape
        self._stride = convolution.stride
        self._groups = convolution.groups
        self._inputs = convolution.weight.shape[1] * convolution.groups
        # Without a layout of the device's own yet, in float32, on the host.
        self._weight = ttnn.Tensor(convolution.weight, ttnn.float32)
        self._bias = ttnn.Tensor(convolution.bias.reshape(1, 1, 1, -1), ttnn.float32)

    def __call__(self, hidden: Any, size: int) -> tuple[Any, int]:
        """Convolve a square image of this size; return the result and its size."""
        layout = shard_layout(size * size)
        output, (height, _), (self._weight, self._bias) = ttnn.conv2d(
            input_tensor=hidden,
            weight_tensor=self._weight,
            bias_tensor=self._bias,
            device=self._device,
            in_channels=self._inputs,
            out_channels=self._outputs,
            batch_size=1,
            input_height=size,
            input_width=size,
            kernel_size=(self._kernel, self._kernel),
            stride=(self._stride, self._stride),
            padding=(self._kernel // 2, self._kernel // 2),
            groups=self._groups,
            dtype=self._dtype,
            conv_config=ttnn.Conv2dConfig(
                weights_dtype=self._dtype, shard_layout=layout, reshard_if_not_optimal=True
            ),
            compute_config=ttnn.WormholeComputeKernelConfig(
                math_fidelity=ttnn.MathFidelity.HiFi4,
                math_approx_mode=False,
                fp32_dest_acc_en=True,
                packer_l1_acc=False,
            ),
            slice_config=ttnn.Conv2dL1FullSliceConfig,
            return_output_dim=True,
            return_weights_and_bias=True,
        )
        return output, height


class BottleneckBlock:
    """An inverted bottleneck: expand, convolve each channel, weigh the channels, project."""

    def __init__(self, block: Block, device: Any, dtype: Any) -> None:
        def convolve(convolution: Convolution) -> Convolve:
            return Convolve(convolution, device, dtype)

        self._expand = convolve(block.expand) if block.expand else None
        self._depthwise = convolve(block.depthwise)
        self._squeeze = convolve(block.squeeze)
        self._excite = convolve(block.excite)
        self._project = convolve(block.project)
        self._residual = block.residual

    def __call__(self, hidden: Any, size: int) -> tuple[Any, int]:
        """Run the block on a square image of this size; return the result and its size."""
        wide, before = hidden, size
        if self._expand is not None:
            wide, _ = self._expand(hidden, size)
            wide = swish(wide)
        wide, size = self._depthwise(wide, before)
        wide = self._weighed(swish(wide))
        narrow, _ = self._project(wide, size)
        if self._residual:
            narrow = ttnn.add(narrow, ttnn.to_memory_config(hidden, narrow.memory_config()))
        return narrow, size

    def _weighed(self, wide: Any) -> Any:
        """Squeeze the image to one pixel, and excite the channels that it asks for."""
        gate, _ = self._squeeze(average(wide), 1)
        gate, _ = self._excite(swish(gate), 1)
        gate = ttnn.sharded_to_interleaved(ttnn.sigmoid_accurate(gate), ttnn.L1_MEMORY_CONFIG)
        return ttnn.multiply(wide, gate)


class EfficientNet:
    """The whole network on one device; activations and weights have one dtype."""

    def __init__(self, weights: Weights, device: Any, dtype: Any = ttnn.bfloat16) -> None:
        self._stem = Convolve(weights.stem, device, dtype)
        self._blocks = [BottleneckBlock(block, device, dtype) for block in weights.blocks]
        self._head = Convolve(weights.head, device, dtype)
        self._classifier = to_device(weights.classifier, device, dtype)
        self._classifier_bias = to_device(weights.classifier_bias, device, dtype)

    def __call__(self, image: Any, size: int) -> Any:
        """Return the logits of an image as ``image_to_device`` gives it."""
        hidden, size = self._stem(image, size)
        hidden = swish(hidden)
        for block in self._blocks:
            hidden, size = block(hidden, size)
        hidden, size = self._head(hidden, size)
        pooled = average(swish(hidden))
        return ttnn.linear(pooled, self._classifier, bias=self._classifier_bias)


def to_device(array: Any, device: Any, dtype: Any = ttnn.bfloat16) -> Any:
    """Put a numpy array on the device, tiled; torch is not needed for it."""
    return ttnn.to_device(ttnn.Tensor(array, dtype).to(ttnn.TILE_LAYOUT), device)


def image_to_device(image: Any, device: Any) -> Any:
    """Put an image on the device, a row for each pixel."""
    flat = image.reshape(1, 1, -1, image.shape[-1])
    return ttnn.to_device(ttnn.Tensor(flat, ttnn.bfloat16), device)


def swish(hidden: Any) -> Any:
    """Return each number times its sigmoid."""
    return ttnn.multiply(hidden, ttnn.sigmoid_accurate(hidden))


def average(hidden: Any) -> Any:
    """Return the average of all pixels, channel by channel."""
    return ttnn.mean(
        ttnn.sharded_to_interleaved(hidden, ttnn.L1_MEMORY_CONFIG), dim=2, keepdim=True
    )


def shard_layout(rows: int) -> Any:
    """Return how activations of so many pixels are spread over the cores."""
    if rows >= HEIGHT_FROM:
        return ttnn.TensorMemoryLayout.HEIGHT_SHARDED
    if rows >= BLOCK_FROM:
        return ttnn.TensorMemoryLayout.BLOCK_SHARDED
    return ttnn.TensorMemoryLayout.WIDTH_SHARDED
