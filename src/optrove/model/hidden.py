"""The operations that move data or manage devices and compute nothing.

Their calls are recorded like all others; lists of cases leave them out unless ``--all-ops`` asks
for them. This table is the one place that says which they are.
"""

from __future__ import annotations

from typing import Final

VECTORS: Final = "sweep."
"""How the ops of vectors begin, which sweep modules make and no model has called."""

BEYOND_VECTORS: Final = "sweep/"
"""The first text after all that begin so, compared by bytes."""

HIDDEN_OPS: Final = frozenset(
    {
        "ttnn.Tensor.cpu",
        "ttnn.Tensor.deallocate",
        "ttnn.Tensor.extract_shard",
        "ttnn.Tensor.item",
        "ttnn.Tensor.to",
        "ttnn.Tensor.to_list",
        "ttnn.Tensor.to_numpy",
        "ttnn.Tensor.to_torch",
        "ttnn.Tensor.to_torch_with_padded_shape",
        "ttnn.Tensor.update_tensor_topology",
        "ttnn.allocate_tensor_on_device",
        "ttnn.allocate_tensor_on_host",
        "ttnn.as_tensor",
        "ttnn.copy_device_to_host_tensor",
        "ttnn.copy_host_to_device_tensor",
        "ttnn.deallocate",
        "ttnn.dump_tensor",
        "ttnn.from_device",
        "ttnn.from_torch",
        "ttnn.load_tensor",
        "ttnn.reallocate",
        "ttnn.synchronize_device",
        "ttnn.to_device",
        "ttnn.to_dtype",
        "ttnn.to_torch",
    }
)


def is_hidden(op: str) -> bool:
    """Tell whether an operation is left out of lists of cases."""
    return op in HIDDEN_OPS or op.startswith(VECTORS)
