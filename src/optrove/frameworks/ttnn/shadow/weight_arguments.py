"""The plain shapes of weights that ops prepare for the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class WeightArgument:
    """An argument that is prepared: its plain shape, and the axis of the output channels.

    In prepared weights that axis is the last one, in which block formats share their exponents. If
    they are ``grouped``, a row holds the channels of one group, and zeros for all others.
    """

    shape: Callable[[Mapping[str, tuple[int, ...]]], tuple[int, ...]]
    channels: int
    grouped: bool = False


def filters(sizes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape of the filters of a convolution over images."""
    (outputs,), (inputs,) = sizes["out_channels"], sizes["in_channels"]
    (groups,) = sizes.get("groups", (1,))
    kernel = sizes["kernel_size"]
    return (outputs, inputs // max(groups, 1), *(kernel * 2 if len(kernel) == 1 else kernel))


def filters_of_length(sizes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape of the filters of a convolution over a length."""
    return (*filters(sizes)[:2], *sizes["kernel_size"])


def filters_transposed(sizes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape of the filters of a transposed convolution."""
    (outputs,), (inputs,) = sizes["out_channels"], sizes["in_channels"]
    (groups,) = sizes.get("groups", (1,))
    return (inputs, outputs // max(groups, 1), *sizes["kernel_size"])


def bias(sizes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape of a bias."""
    return (1, 1, 1, *sizes["out_channels"])
