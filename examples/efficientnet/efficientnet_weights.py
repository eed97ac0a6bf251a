"""Make the sizes, weights and input of an EfficientNet, from a seed and without torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Swish and gates let part of the variance through; these make up for it, so that it neither
# grows nor dies from block to block, as batch norms see to in a trained network.
SWISH_GAIN = 1.7
GATE_GAIN = 1.8


@dataclass(frozen=True, slots=True)
class Stage:
    """Blocks of one kind; the first of them has the stride and the input channels of its own."""

    expansion: int
    channels: int
    blocks: int
    stride: int
    kernel: int


@dataclass(frozen=True, slots=True)
class Architecture:
    """The sizes of a network; images are square."""

    image: int
    stem: int
    stages: tuple[Stage, ...]
    head: int
    classes: int


B0 = Architecture(
    image=224,
    stem=32,
    stages=(
        Stage(expansion=1, channels=16, blocks=1, stride=1, kernel=3),
        Stage(expansion=6, channels=24, blocks=2, stride=2, kernel=3),
        Stage(expansion=6, channels=40, blocks=2, stride=2, kernel=5),
        Stage(expansion=6, channels=80, blocks=3, stride=2, kernel=3),
        Stage(expansion=6, channels=112, blocks=3, stride=1, kernel=5),
        Stage(expansion=6, channels=192, blocks=4, stride=2, kernel=5),
        Stage(expansion=6, channels=320, blocks=1, stride=1, kernel=3),
    ),
    head=1280,
    classes=1000,
)

SMALL = Architecture(
    image=64,
    stem=32,
    stages=(
        Stage(expansion=1, channels=16, blocks=1, stride=1, kernel=3),
        Stage(expansion=6, channels=24, blocks=2, stride=2, kernel=3),
        Stage(expansion=6, channels=40, blocks=1, stride=2, kernel=5),
    ),
    head=128,
    classes=10,
)

ARCHITECTURES = {"small": SMALL, "b0": B0}


@dataclass(frozen=True, slots=True)
class Convolution:
    """A square convolution, its batch norm folded in: weight as OIHW, bias by output channel."""

    weight: np.ndarray
    bias: np.ndarray
    stride: int = 1
    groups: int = 1


@dataclass(frozen=True, slots=True)
class Block:
    """An inverted bottleneck with squeeze and excitation; the first one expands nothing."""

    expand: Convolution | None
    depthwise: Convolution
    squeeze: Convolution
    excite: Convolution
    project: Convolution
    residual: bool


@dataclass(frozen=True, slots=True)
class Weights:
    """All parameters of a network, as float32; the classifier's matrix is inputs by classes."""

    stem: Convolution
    blocks: tuple[Block, ...]
    head: Convolution
    classifier: np.ndarray
    classifier_bias: np.ndarray


def make_weights(architecture: Architecture, seed: int = 0) -> Weights:
    """Return random weights, the same for the same seed."""
    random = np.random.default_rng(seed)
    stem = _convolution(random, (architecture.stem, 3, 3), stride=2)
    blocks = []
    channels = architecture.stem
    for stage in architecture.stages:
        for index in range(stage.blocks):
            blocks.append(_block(random, channels, stage, stride=1 if index else stage.stride))
            channels = stage.channels
    classifier = _normal(random, architecture.head, architecture.classes)
    return Weights(
        stem=stem,
        blocks=tuple(blocks),
        head=_convolution(random, (architecture.head, channels, 1)),
        classifier=classifier * architecture.head**-0.5,
        classifier_bias=_normal(random, 1, architecture.classes) * 0.1,
    )


def make_image(architecture: Architecture, seed: int = 1) -> np.ndarray:
    """Return one random image with its channels last, the same for the same seed."""
    size = architecture.image
    return _normal(np.random.default_rng(seed), 1, size, size, 3)


def _block(random: np.random.Generator, channels: int, stage: Stage, stride: int) -> Block:
    wide = channels * stage.expansion
    narrow = channels // 4
    expands = stage.expansion > 1
    return Block(
        expand=_convolution(random, (wide, channels, 1)) if expands else None,
        depthwise=_convolution(
            random,
            (wide, 1, stage.kernel),
            stride=stride,
            groups=wide,
            gain=SWISH_GAIN if expands else 1.0,
        ),
        squeeze=_convolution(random, (narrow, wide, 1)),
        excite=_convolution(random, (wide, narrow, 1)),
        project=_convolution(random, (stage.channels, wide, 1), gain=SWISH_GAIN * GATE_GAIN),
        residual=stride == 1 and channels == stage.channels,
    )


def _convolution(
    random: np.random.Generator,
    shape: tuple[int, int, int],
    *,
    stride: int = 1,
    groups: int = 1,
    gain: float = 1.0,
) -> Convolution:
    """Return a convolution from outputs, inputs of each group, and the size of the kernel."""
    outputs, inputs, kernel = shape
    scale = gain * (inputs * kernel**2) ** -0.5
    weight = _normal(random, outputs, inputs, kernel, kernel) * np.float32(scale)
    return Convolution(weight, _normal(random, outputs) * 0.1, stride=stride, groups=groups)


def _normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)
