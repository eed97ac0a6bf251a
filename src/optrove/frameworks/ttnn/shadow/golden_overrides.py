"""Golden functions in torch for ops whose own one is missing or incomplete.

Ops of large language models split and join heads, rotate them by their positions, and write to a
paged cache. Each override has the parameter names of ttnn, as golden functions do. A call with
other parameters raises, and its output has no values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

GoldenOverride = Callable[..., Any]

TILE: Final = 32
NOWHERE: Final = (-1, 2**32 - 1)
"""The entry of a page table without a page, and the position of a user that is skipped."""

# Keywords that choose where and how an op computes, not what.
PLACEMENT: Final = frozenset(
    {
        "memory_config",
        "compute_kernel_config",
        "program_config",
        "sub_core_grids",
        "overlap_qk_coregrid",
        "output_tensor",
        "output_tensors",
        "pad_value",
        "reshape_tile_mode",
        "skip_padding_fill",
    }
)


def golden_override(name: str) -> GoldenOverride | None:
    """Return the function that computes the op ``name`` in torch; None if there is none."""
    override = OVERRIDES.get(name)
    if override is None:
        return None

    def compute(*arguments: Any, **keywords: Any) -> Any:
        relevant = {
            key: value
            for key, value in keywords.items()
            if value is not None and key not in PLACEMENT
        }
        return override(*arguments, **relevant)

    return compute


def reshape(
    input_tensor: Any, shape: Any = None, padded_shape: Any = None, *, logical_shape: Any = None
) -> Any:
    """Change the shape; with a padded shape, drop the rows and columns outside of ``shape``."""
    wanted = tuple(shape if logical_shape is None else logical_shape)
    if padded_shape is None or tuple(input_tensor.shape) == wanted:
        return input_tensor.reshape(wanted)
    return input_tensor.reshape(tuple(padded_shape))[tuple(slice(size) for size in wanted)]


def split_heads(
    input: Any,  # noqa: A002 - ttnn's own name
    input_kv: Any = None,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    transpose_k_heads: bool = True,
) -> tuple[Any, Any, Any]:
    """Split fused columns into heads of queries, keys and values: [batch, head, place, size]."""
    groups = num_heads if num_kv_heads is None else num_kv_heads
    if input_kv is None:
        query, key, value = _sections(input, (num_heads, groups, groups))
    else:
        (query,) = _sections(input, (num_heads,))
        key, value = _sections(input_kv, (groups, groups))
    query, key, value = (part.squeeze(1).transpose(1, 2) for part in (query, key, value))
    return query, key.transpose(-2, -1) if transpose_k_heads else key, value


def split_heads_decode(
    input_tensor: Any, *, num_heads: int, num_kv_heads: int | None = None
) -> tuple[Any, ...]:
    """Split the fused columns of one token for each user into heads: [1, user, head, size]."""
    groups = num_heads if num_kv_heads is None else num_kv_heads
    return tuple(part.squeeze(1) for part in _sections(input_tensor, (num_heads, groups, groups)))


def concat_heads(input_tensor: Any) -> Any:
    """Put the heads of each place side by side: [batch, 1, place, head x size]."""
    batch, _, places, _ = input_tensor.shape
    return input_tensor.transpose(1, 2).reshape(batch, 1, places, -1)


def concat_heads_decode(input_tensor: Any, *, num_heads: int) -> Any:
    """Put the heads of each user side by side, in a tile of users; missing users have zeros."""
    users = input_tensor.shape[1]
    joined = input_tensor[0, :, :num_heads].reshape(users, -1)
    tile = joined.new_zeros(-(-users // TILE) * TILE, joined.shape[-1])
    tile[:users] = joined
    return tile[None, None]


def rotate(
    input_tensor: Any,
    cos_cache: Any,
    sin_cache: Any,
    trans_mat: Any,
    *,
    is_decode_mode: bool = False,
) -> Any:
    """Rotate the pairs of each head by the angles of its place, tile by tile.

    In decode mode each user has its own row of angles and its own transformation matrix.
    """
    users, places = input_tensor.shape[1], input_tensor.shape[2]
    matrices = trans_mat.reshape(-1, TILE, TILE)
    if is_decode_mode:
        cosines, sines = (table[:, :users, :1] for table in (cos_cache, sin_cache))
        matrices = matrices[:users, None]
    else:
        cosines, sines = (table[:, :, :places] for table in (cos_cache, sin_cache))
        matrices = matrices[0]
    tiles = input_tensor.unflatten(-1, (-1, TILE))
    return input_tensor * cosines + (tiles @ matrices).flatten(-2) * sines


def fill_pages(
    cache_tensor: Any,
    input_tensor: Any,
    page_table: Any,
    *,
    batch_idx_tensor: Any = None,
    batch_idx: int = 0,
) -> Any:
    """Write the keys or values of whole prompts to the pages of their users."""
    filled, block = cache_tensor.clone(), cache_tensor.shape[2]
    users = [batch_idx] if batch_idx_tensor is None else batch_idx_tensor.flatten().tolist()
    for user, row in zip(users, input_tensor, strict=True):
        for place, part in enumerate(row.split(block, dim=1)):
            page = _page(page_table, user, place)
            if page is not None:
                filled[page, :, : part.shape[1]] = part
    return filled


def update_pages(
    cache_tensor: Any,
    input_tensor: Any,
    *,
    update_idxs: Iterable[int] = (),
    update_idxs_tensor: Any = None,
    page_table: Any = None,
) -> Any:
    """Write the key or value of one token for each user at the user's position."""
    updated, heads, block = cache_tensor.clone(), cache_tensor.shape[1], cache_tensor.shape[2]
    indices = update_idxs if update_idxs_tensor is None else update_idxs_tensor.flatten().tolist()
    for user, position in enumerate(map(_place, indices)):
        if position is None:
            continue
        page = user if page_table is None else _page(page_table, user, position // block)
        if page is not None:
            place = position if page_table is None else position % block
            updated[page, :, place] = input_tensor[0, user, :heads]
    return updated


def update_two_caches(
    cache_tensor1: Any,
    input_tensor1: Any,
    cache_tensor2: Any,
    input_tensor2: Any,
    **positions: Any,
) -> tuple[Any, Any]:
    """Write to the cache of keys and to that of values."""
    return (
        update_pages(cache_tensor1, input_tensor1, **positions),
        update_pages(cache_tensor2, input_tensor2, **positions),
    )


OVERRIDES: Final[Mapping[str, GoldenOverride]] = {
    # Its golden function takes no keywords and no padded shape.
    "ttnn.reshape": reshape,
    "ttnn.experimental.nlp_create_qkv_heads": split_heads,
    "ttnn.experimental.nlp_create_qkv_heads_decode": split_heads_decode,
    "ttnn.experimental.nlp_concat_heads": concat_heads,
    "ttnn.experimental.nlp_concat_heads_decode": concat_heads_decode,
    "ttnn.experimental.rotary_embedding_llama": rotate,
    "ttnn.experimental.paged_fill_cache": fill_pages,
    "ttnn.experimental.paged_update_cache": update_pages,
    "ttnn.experimental.paged_fused_update_cache": update_two_caches,
}


def _sections(fused: Any, heads: tuple[int, ...]) -> Iterator[Any]:
    """Return the parts of fused columns, each as [..., head, size]."""
    size, left = divmod(fused.shape[-1], sum(heads))
    if left:
        raise ValueError(f"{fused.shape[-1]} columns are not {sum(heads)} heads of one size")
    parts = fused.split([count * size for count in heads], dim=-1)
    return (part.unflatten(-1, (-1, size)) for part in parts)


def _page(page_table: Any, user: int, place: int) -> int | None:
    """Return the page at a place of a user's row; None if the entry is empty."""
    if not 0 <= user < len(page_table):
        raise ValueError(f"the page table has {len(page_table)} users, and none at {user}")
    return _place(page_table[user].tolist()[place])


def _place(entry: int) -> int | None:
    """Return a page or a position; None if the entry means that there is none."""
    if entry in NOWHERE:
        return None
    if entry < 0:
        raise ValueError(f"there is no page and no position {entry}")
    return entry
