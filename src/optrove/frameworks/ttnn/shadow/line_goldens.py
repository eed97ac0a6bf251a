"""Golden functions of ops that depend on other chips of a line, or on a chip's place in it.

Each gets the arguments of every chip of a line by their names, with torch tensors, and returns one
answer for each chip: a tensor, or a list of the answers for several outputs, where None stands for
one that is not computed. Arguments that are not known here raise, and the outputs have no values.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from optrove.frameworks.ttnn.shadow.golden_overrides import (
    after_product,
    multiplied,
    rotate,
)
from optrove.model.ttnn_classes import TILE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

Chip: TypeAlias = "Mapping[str, Any]"
Line: TypeAlias = "Sequence[Chip]"
Golden: TypeAlias = "Callable[..., Any] | None"
LineGolden: TypeAlias = "Callable[[Line, Golden], list[Any]]"


def refuse(chip: Chip, names: Collection[str]) -> None:
    """Raise if one of these arguments asks for something."""
    for name in names:
        if chip.get(name) not in (None, False, 0, ()):
            raise ValueError(f"the argument {name} is not supported")


def _joined(line: Line, name: str, dim: int) -> Any:
    return import_module("torch").cat([chip[name] for chip in line], dim)


def ring_attention(line: Line, golden: Golden) -> list[Any]:
    """Attend to the keys of all chips; queries, keys and values are divided along the places."""
    assert golden is not None  # noqa: S101 - every release that has the op has it
    chip = line[0]
    refuse(chip, _OF_RING_CACHES)
    kept = {name: chip[name] for name in _OF_RING_ATTENTION if chip.get(name) is not None}
    names = ("input_tensor_q", "input_tensor_k", "input_tensor_v")
    whole = [_in_order(_joined(line, name, 2), len(line), chip) for name in names]
    joint = [chip.get(f"joint_tensor_{part}") for part in "qkv"]
    output, joint_output, *_ = golden(*whole, *joint, **kept)
    parts = _out_of_order(output, len(line), chip).chunk(len(line), dim=2)
    return [[part, joint_output, None] for part in parts]


_OF_RING_ATTENTION: Final = (
    *("joint_strategy", "logical_n", "logical_l", "is_causal", "is_cross", "scale"),
    *("attention_sink", "sliding_window_size"),
)
_OF_RING_CACHES: Final = (
    *("kv_cache_batch_idx", "kv_actual_isl", "kv_actual_isl_tensor", "kv_valid_end_tensor"),
    *("circular_kv_cache", "slot_id", "kv_cache_layer_idx"),
)


def _balanced(chips: int) -> list[int]:
    """Return the order of halves: each chip has one from the front and one from the back."""
    return [half for chip in range(chips) for half in (chip, 2 * chips - 1 - chip)]


def _in_order(numbers: Any, chips: int, chip: Chip) -> Any:
    if not chip.get("is_balanced"):
        return numbers
    halves = numbers.chunk(2 * chips, dim=2)
    order = _balanced(chips)
    return import_module("torch").cat([halves[order.index(i)] for i in range(2 * chips)], 2)


def _out_of_order(numbers: Any, chips: int, chip: Chip) -> Any:
    if not chip.get("is_balanced"):
        return numbers
    halves = numbers.chunk(2 * chips, dim=2)
    return import_module("torch").cat([halves[half] for half in _balanced(chips)], 2)


def gathered_product(line: Line, _: Golden) -> list[Any]:
    """Multiply the columns of all chips by each chip's weights."""
    refuse(line[0], ("fsdp_cluster_axis",))
    gathered = _joined(line, "input_tensor", -1)
    return [after_product(multiplied(gathered, **_weights(chip)), chip) for chip in line]


def gathered_and_product(line: Line, _: Golden) -> list[Any]:
    """Return the columns of all chips, then their product with each chip's weights."""
    gathered = _joined(line, "input_tensor", -1)
    answers = [after_product(multiplied(gathered, **_weights(chip)), chip) for chip in line]
    return [[gathered, *(answer if isinstance(answer, list) else [answer])] for answer in answers]


def product_and_share(line: Line, _: Golden) -> list[Any]:
    """Return each chip's product, then its share of the sum of all products."""
    bare = ("addcmul_input_tensor1", "addcmul_input_tensor2", "chunks")
    products = [
        after_product(
            multiplied(chip["input_tensor"], **_weights(chip)),
            {name: value for name, value in chip.items() if name not in bare},
        )
        for chip in line
    ]
    total = sum(products[1:], products[0])
    shares = total.chunk(len(line), dim=line[0]["dim"])
    return [
        [product, _with_addcmul(share, chip)]
        for product, share, chip in zip(products, shares, line, strict=True)
    ]


def _with_addcmul(share: Any, chip: Chip) -> Any:
    return after_product(share, {name: chip.get(name) for name in _OF_ADDCMUL})


_OF_ADDCMUL: Final = ("addcmul_input_tensor1", "addcmul_input_tensor2", "fused_ternary_scalar")


def _weights(chip: Chip) -> dict[str, Any]:
    bias = chip.get("bias_tensor")
    return {"weight": chip["weight_tensor"], "bias": chip.get("bias") if bias is None else bias}


def share_of_lists(line: Line, _: Golden) -> list[Any]:
    """Return for each chip the sum over all chips of the tensor at its place in their lists."""
    lists = [chip["input_tensors"] for chip in line]
    return [sum(parts[1:], parts[0]) for parts in zip(*lists, strict=True)]


def gathered_in_place(line: Line, _: Golden) -> list[Any]:
    """Join the parts of all chips."""
    refuse(
        line[0],
        (
            *("input_batch_index", "input_batch_index_tensor", "gathered_dim_size"),
            *("gathered_prefix_tensor", "gathered_slab_global", "batch_slot_layer_idx"),
        ),
    )
    return [_joined(line, "input_tensor", line[0]["dim"])] * len(line)


def parts_of_all(line: Line, _: Golden) -> list[Any]:
    """Return for every chip the parts of all."""
    return [[chip["input_tensor"] for chip in line]] * len(line)


def divided_norm(line: Line, _: Golden, *, centered: bool = False) -> list[Any]:
    """Divide rows whose columns are on several chips by their size, then split and rotate heads."""
    refuse(line[0], ("affine_tile_row_map",))
    heads = line[0].get("num_heads_per_device") or 1
    rows = _joined(line, "input_tensor", -1)
    mean = rows.mean(-1, keepdim=True) if centered else 0
    epsilon = line[0].get("epsilon") or 1e-5
    scale = ((rows - mean).pow(2).mean(-1, keepdim=True) + epsilon).rsqrt()
    answers = []
    for chip in line:
        numbers = chip["input_tensor"]
        if chip.get("per_head_norm"):
            parts = numbers.unflatten(-1, (heads, -1))
            norms = (parts.pow(2).mean(-1, keepdim=True) + epsilon).rsqrt()
            result = (parts * norms).flatten(-2)
        else:
            result = (numbers - mean) * scale
        weight, bias = (_as_rows(chip.get(name), numbers) for name in ("weight", "bias"))
        result = result if weight is None else result * weight
        result = result if bias is None else result + bias
        answers.append(_in_rotated_heads(result, heads, chip))
    return answers


def divided_layer_norm(line: Line, golden: Golden) -> list[Any]:
    """Do as ``divided_norm``, less the mean."""
    return divided_norm(line, golden, centered=True)


def _as_rows(weight: Any, rows: Any) -> Any:
    """Return weights as one row, if there are no more than one for each column."""
    is_row = weight is not None and weight.numel() == rows.shape[-1]
    return weight.reshape(-1) if is_row else weight


def _in_rotated_heads(rows: Any, heads: int, chip: Chip) -> Any:
    if heads > 1:
        rows = rows.reshape(1, -1, heads, rows.shape[-1] // heads).transpose(1, 2)
    if chip.get("rope_cos") is None:
        return rows
    return rotate(rows, chip["rope_cos"], chip["rope_sin"], chip["transformation_mat"])


def _number(value: Any) -> int:
    """Return a number that may be in a tensor."""
    return int(value.flatten()[0]) if hasattr(value, "flatten") else int(value)


def _start(place: int, chips: int, chunk: int, before: int) -> int:
    """Return where on a chip the next chunk starts, if chunks go round the chips of a line."""
    rounds, chip = divmod(before // chunk, chips)
    if place == chip:
        return rounds * chunk + before % chunk
    return (rounds + 1) * chunk if place < chip else rounds * chunk


def written_chunks(line: Line, _: Golden) -> list[Any]:
    """Write each chip's chunk to its cache, behind all tokens that are there."""
    refuse(line[0], ("tp_axis", "rope", "scales", "valid_global"))
    answers = []
    for place, chip in enumerate(line):
        cache, chunk = chip["cache"].clone(), chip["input"]
        count = chunk.shape[2]
        start = _start(place, len(line), count, _number(chip["kv_actual_global"]))
        slot = _number(chip["slot_idx"]) * chip["num_layers"] + chip["layer_idx"]
        room = max(min(count, cache.shape[2] - start), 0)
        cache[slot : slot + len(chunk), :, start : start + room] = chunk[:, :, :room]
        answers.append(cache)
    return answers


def cleared_padding(line: Line, _: Golden) -> list[Any]:
    """Clear the places from the last token on to the next whole block."""
    answers = []
    for place, chip in enumerate(line):
        cache = chip["cache"].clone()
        first, align = _number(chip["valid_global"]), chip.get("pad_align") or 128
        chunk = chip["chunk_size_global"] // len(line)
        slot = _number(chip["slot_idx"]) * chip["num_layers"] + chip["layer_idx"]
        for token in range(first, -(-first // align) * align):
            rounds, within = divmod(token, chunk * len(line))
            if within // chunk == place:
                cache[slot, :, rounds * chunk + within % chunk] = 0
        answers.append(cache)
    return answers


def rotated_chunks(line: Line, _: Golden) -> list[Any]:
    """Rotate each chip's chunk by the angles of its places, which are behind all tokens before."""
    refuse(line[0], ("seq_subshard_axis", "rotary_dim", "rotary_offset", "concat_prefix"))
    answers = []
    for place, chip in enumerate(line):
        heads = chip["input"]
        count = heads.shape[2]
        start = _start(place, len(line), count, _number(chip["kv_actual_global"]))
        cosines, sines = (chip[name][:, :, start : start + count] for name in ("cos", "sin"))
        answers.append(rotate(heads, cosines, sines, chip["trans_mat"].reshape(-1, TILE, TILE)))
    return answers
