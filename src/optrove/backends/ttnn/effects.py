"""What ops of ttnn do to the memory they are given, which no signature tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# Ops that give memory without writing to it.
UNWRITTEN = frozenset({"ttnn.empty", "ttnn.empty_like", "ttnn.allocate_tensor_on_device"})

# Ops that never change what their input holds, though their output may share its buffer.
MOVES = frozenset(
    {
        "ttnn.bitcast",
        "ttnn.concat",
        "ttnn.expand",
        "ttnn.experimental.view",
        "ttnn.interleaved_to_sharded",
        "ttnn.move",
        "ttnn.narrow",
        "ttnn.pad",
        "ttnn.permute",
        "ttnn.reallocate",
        "ttnn.repeat",
        "ttnn.reshape",
        "ttnn.reshape_on_device",
        "ttnn.reshard",
        "ttnn.sharded_to_interleaved",
        "ttnn.slice",
        "ttnn.squeeze",
        "ttnn.tilize",
        "ttnn.tilize_with_val_padding",
        "ttnn.tilize_with_zero_padding",
        "ttnn.to_dtype",
        "ttnn.to_layout",
        "ttnn.to_memory_config",
        "ttnn.transpose",
        "ttnn.typecast",
        "ttnn.unsqueeze",
        "ttnn.unsqueeze_to_4D",
        "ttnn.untilize",
        "ttnn.untilize_with_unpadding",
        "ttnn.view",
    }
)

# Parameters that an op writes to but does not return.
WRITTEN: Mapping[str, frozenset[str]] = {
    "ttnn.batch_norm": frozenset({"running_mean", "running_var"}),
    "ttnn.moreh_clip_grad_norm": frozenset({"inputs"}),
    "ttnn.moreh_nll_loss": frozenset({"divisor_tensor"}),
}

# Ops that write to these parameters with training=True and only read them otherwise.
ONLY_IN_TRAINING = frozenset({"ttnn.batch_norm"})

# Parameters that every op which has them writes to. Most such ops return what they wrote, but not
# always in the caller's form, and never the parts that only served in between.
CACHES = frozenset({"cache", "cache_tensor", "cache_tensor1", "cache_tensor2"})
SCRATCH = frozenset({"buffer_tensor", "exchange_buffer", "forwarding_buffer"})
SCRATCH_PREFIXES = ("persistent_", "intermediate_")

# What such an op also reads; all else that it writes to has no part in its result.
READ_TOO = CACHES | {"inputs"}


def written(name: str, parameters: frozenset[str]) -> frozenset[str]:
    """Return those of an op's parameters that it may write to without returning them."""
    scratch = {parameter for parameter in parameters if parameter.startswith(SCRATCH_PREFIXES)}
    return parameters & (WRITTEN.get(name, frozenset()) | CACHES | SCRATCH | scratch)
