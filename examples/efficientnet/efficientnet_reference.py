"""The EfficientNet in torch, float32, to compare with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    import numpy as np
    from efficientnet_weights import Block, Convolution, Weights


def efficientnet(image: np.ndarray, weights: Weights) -> torch.Tensor:
    """Return the logits of an image that has its channels last."""
    hidden = torch.from_numpy(image).permute(0, 3, 1, 2)
    hidden = functional.silu(_convolve(hidden, weights.stem))
    for block in weights.blocks:
        hidden = _block(hidden, block)
    hidden = functional.silu(_convolve(hidden, weights.head))
    pooled = hidden.mean(dim=(2, 3))
    return pooled @ torch.from_numpy(weights.classifier) + torch.from_numpy(weights.classifier_bias)


def pcc(expected: torch.Tensor, actual: torch.Tensor) -> float:
    """Return the Pearson correlation of two tensors of one shape."""
    if expected.shape != actual.shape:
        raise ValueError(f"shapes differ: {tuple(expected.shape)} and {tuple(actual.shape)}")
    pair = torch.stack([expected.flatten().double(), actual.flatten().double()])
    return float(torch.corrcoef(pair)[0, 1])


def _block(hidden: torch.Tensor, block: Block) -> torch.Tensor:
    wide = functional.silu(_convolve(hidden, block.expand)) if block.expand else hidden
    wide = functional.silu(_convolve(wide, block.depthwise))
    pooled = wide.mean(dim=(2, 3), keepdim=True)
    gate = torch.sigmoid(_convolve(functional.silu(_convolve(pooled, block.squeeze)), block.excite))
    narrow = _convolve(wide * gate, block.project)
    return hidden + narrow if block.residual else narrow


def _convolve(hidden: torch.Tensor, convolution: Convolution) -> torch.Tensor:
    weight = torch.from_numpy(convolution.weight)
    return functional.conv2d(
        hidden,
        weight,
        torch.from_numpy(convolution.bias),
        stride=convolution.stride,
        padding=weight.shape[-1] // 2,
        groups=convolution.groups,
    )
