"""Golden functions in torch for ops whose own one is missing, incomplete or wrong.

Ops of large language models split and join heads, rotate them by their positions, and write to a
paged cache. Each override has the parameter names of ttnn, as golden functions do. A call with
other parameters raises, and its output has no values.

An adapter changes the arguments of a call and leaves the rest to a golden function of ttnn, that of
the op itself or of one that computes the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any, Final

from optrove.frameworks.ttnn.convert.memory import activation_parameters
from optrove.model.ttnn_classes import TILE

GoldenOverride = Callable[..., Any]

LARGEST_FLOAT: Final = 3.4028234663852886e38
L1_ALIGNMENT: Final = 16
HIDDEN_SIZE: Final = 5120
"""The one width that ttnn's multiplication for state spaces takes."""
CHANNELS: Final = 8
"""Channels that are moved last are filled up to a multiple of this."""

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
        "compute_with_storage_grid_size",
        "config",
        "dtype",
        "math_fidelity",
        "mesh_coords",
        "optional_output_tensor",
        "output",
    }
)


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


def split_grouped_heads(
    input: Any,  # noqa: A002 - ttnn's own name
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    transpose_k_heads: bool = True,
) -> tuple[Any, Any, Any]:
    """Split fused columns that hold, for each key, its queries, itself and its value."""
    groups = num_heads if num_kv_heads is None else num_kv_heads
    queries = num_heads // groups
    rows = input.reshape(input.shape[0], input.shape[-2], groups, queries + 2, -1)
    query = rows[..., :queries, :].flatten(2, 3).transpose(1, 2)
    key, value = (rows[..., place, :].transpose(1, 2) for place in (queries, queries + 1))
    return query, key.transpose(-2, -1) if transpose_k_heads else key, value


def split_query_key_value(  # noqa: PLR0913 - the arguments of the op
    input_tensor: Any,
    kv_input_tensor: Any = None,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    transpose_key: bool = True,
    use_falcon7b_backend: bool = False,  # noqa: ARG001 - the same result by another way
    is_sharded: bool = False,
) -> tuple[Any, Any, Any]:
    """Split fused columns into heads; a sharded input has them grouped by head."""
    heads: dict[str, Any] = {
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "transpose_k_heads": transpose_key,
    }
    if is_sharded:
        return split_grouped_heads(input_tensor, **heads)
    separate = None if kv_input_tensor is None else kv_input_tensor[:, None]
    return split_heads(input_tensor[:, None], separate, **heads)


def split_heads_of_shards(
    input_tensor: Any,
    compute_with_storage_grid_size: Any = None,  # noqa: ARG001 - it chooses where it computes
    *,
    num_heads: int,
    shard_width: int | None = None,
) -> tuple[Any, Any, Any]:
    """Split fused columns into heads; each shard has queries, keys and values of its own."""
    width = shard_width or input_tensor.shape[-1]
    size = input_tensor.shape[-1] // (3 * num_heads)
    parts = input_tensor.squeeze(1).unflatten(-1, (-1, 3, width // (3 * size), size))
    query, key, value = (each.flatten(2, 3).transpose(1, 2) for each in parts.unbind(3))
    return query, key.transpose(-2, -1), value


def split_heads_of_falcon(input: Any) -> tuple[Any, Any, Any]:  # noqa: A002 - ttnn's own name
    """Split fused columns into 71 heads of queries, one of keys and one of values."""
    return split_heads(input, num_heads=71, num_kv_heads=1, transpose_k_heads=False)


def split_heads_of_vit(input: Any) -> tuple[Any, Any, Any]:  # noqa: A002 - ttnn's own name
    """Split fused columns into 12 heads each of queries, keys and values."""
    return split_heads(input, num_heads=12, transpose_k_heads=False)


def split_heads_of_segformer(input: Any) -> tuple[Any, Any, Any]:  # noqa: A002 - ttnn's own name
    """Split columns into heads of 32; all three results are the same."""
    heads = input.unflatten(-1, (-1, TILE)).squeeze(1).transpose(1, 2)
    return heads, heads, heads


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


def rotate_queries_and_keys(
    q_input_tensor: Any, k_input_tensor: Any, cos_cache: Any, sin_cache: Any, trans_mat: Any
) -> tuple[Any, ...]:
    """Rotate one token for each user: the first half of the angles is for queries."""
    users, keys = q_input_tensor.shape[1], k_input_tensor.shape[1]
    matrix = trans_mat.reshape(-1, TILE, TILE)
    return tuple(
        rotate(
            heads,
            cos_cache[:, start : start + count],
            sin_cache[:, start : start + count],
            matrix[start : start + count] if len(matrix) >= users + keys else matrix[:count],
            is_decode_mode=True,
        )
        for heads, start, count in ((q_input_tensor, 0, users), (k_input_tensor, users, keys))
    )


def rotate_halves(
    input_tensor: Any, cos_cache: Any, sin_cache: Any, token_index: int | None = None
) -> Any:
    """Rotate the two halves of each head by the angles of its place, or all by those of one."""
    start, count = (0, input_tensor.shape[-2]) if token_index is None else (token_index, 1)
    cosines, sines = (table[..., start : start + count, :] for table in (cos_cache, sin_cache))
    return input_tensor * cosines + _turned(input_tensor) * sines


def rotate_halves_of_users(
    input_tensor: Any, cos_cache: Any, sin_cache: Any, *, is_decode_mode: bool = False
) -> Any:
    """Rotate the two halves of each head; in decode mode each user has its own row of angles."""
    users = input_tensor.shape[1]
    if not is_decode_mode:
        return rotate_halves(input_tensor, cos_cache, sin_cache)
    cosines, sines = (table[:, :users, :1] for table in (cos_cache, sin_cache))
    return input_tensor * cosines + _turned(input_tensor) * sines


def _turned(heads: Any) -> Any:
    """Return heads whose second half comes first, with the other sign."""
    turned = heads.roll(heads.shape[-1] // 2, dims=-1)
    turned[..., : heads.shape[-1] // 2] *= -1
    return turned


def sum_over(input: Any, *, dims: Iterable[int]) -> Any:  # noqa: A002 - ttnn's own name
    """Sum over dimensions, which stay with the size one."""
    return input.sum(dim=tuple(dims), keepdim=True)


def unchanged(input_tensor: Any, *_: Any) -> Any:
    """Return the values; the packing rounds them to another dtype."""
    return input_tensor


def view(input_tensor: Any, *shape: Any) -> Any:
    """Change the shape, passed as one list or as four numbers."""
    return input_tensor.reshape(*shape)


def channels_last(input: Any) -> Any:  # noqa: A002 - ttnn's own name
    """Move channels behind the places: [1, batch, channel, place] to [1, 1, place, channel]."""
    rows = input.transpose(-2, -1).flatten(1, 2)[:, None]
    filled = rows.new_zeros(*rows.shape[:-1], -(-rows.shape[-1] // CHANNELS) * CHANNELS)
    filled[..., : rows.shape[-1]] = rows
    return filled


def channels_first(input: Any) -> Any:  # noqa: A002 - ttnn's own name
    """Move channels before the places: [1, 1, place, channel] to [1, 1, channel, place]."""
    return input.transpose(-2, -1)


def multiply_heads(input_tensor_a: Any, input_tensor_b: Any) -> Any:
    """Multiply [place, head, user, k] by [user, group, k, n]; heads of one group share it."""
    repeated = input_tensor_a.shape[1] // input_tensor_b.shape[1]
    groups = input_tensor_b.repeat_interleave(repeated, dim=1)
    return (input_tensor_a.transpose(0, 2) @ groups).transpose(0, 2)


def multiply_heads_of_cache(
    input_tensor_a: Any, input_tensor_b: Any, *, num_tokens: int, transpose_hw: bool
) -> Any:
    """Multiply heads by the first tokens of a cache, in whole tiles."""
    tokens = input_tensor_b[:, :, : -(-num_tokens // TILE) * TILE]
    return multiply_heads(input_tensor_a, tokens.transpose(-2, -1) if transpose_hw else tokens)


def part_of_cache(input_tensor: Any, *, seq_len_start: int, seq_len_end: int) -> Any:
    """Return some places of a cache."""
    return input_tensor[:, :, seq_len_start:seq_len_end]


def multiply_repeated(a: Any, b: Any) -> Any:
    """Multiply columns that repeat as a whole by columns that repeat one by one.

    Either may have been repeated before: the op takes one hidden size only.
    """
    width = TILE * HIDDEN_SIZE
    if a.shape[-1] == TILE:
        a = a.repeat(1, 1, 1, HIDDEN_SIZE)
    return a * (b if b.shape[-1] == width else b.repeat_interleave(TILE, dim=-1))


def sum_groups(input: Any) -> Any:  # noqa: A002 - ttnn's own name
    """Sum each group of 32 columns."""
    return input.unflatten(-1, (-1, TILE)).sum(-1)


def scan(a: Any, bx: Any, h_prev: Any) -> Any:
    """Return the states of a linear recurrence: each is a times the one before, plus bx."""
    states, state = [], h_prev.reshape(-1)
    for factor, term in zip(a.reshape(-1, a.shape[-1]), bx.reshape(-1, bx.shape[-1]), strict=True):
        state = factor * state + term
        states.append(state)
    output = a.clone().reshape(-1, a.shape[-1])
    for place, state in enumerate(states):
        output[place] = state
    return output.reshape(a.shape)


def moving_average(input_tensor: Any, alpha: float, **others: Any) -> Any:  # noqa: ARG001 - they choose where it computes
    """Return alpha times the average before, first zero, plus the rest of each number."""
    output, average = input_tensor.clone(), 0.0
    for place in range(input_tensor.shape[-1]):
        average = average * alpha + (1 - alpha) * input_tensor[..., place]
        output[..., place] = average
    return output


def gelu(input_tensor: Any, *_: Any, variant: Any = None, **_others: Any) -> Any:
    """Return gelu, also in fast mode; of infinity its limit, where torch has no number."""
    torch = import_module("torch")
    approximate = "tanh" if "tanh" in str(variant).lower() else "none"
    numbers = torch.nn.functional.gelu(input_tensor.float(), approximate=approximate)
    return torch.where(input_tensor.isinf(), input_tensor.float().clamp(min=0), numbers)


def tanhshrink(input_tensor: Any) -> Any:
    """Subtract the hyperbolic tangent, in float64: near zero both have the same first digits."""
    numbers = input_tensor.double()
    return (numbers - numbers.tanh()).float()


def integral_image(input_tensor: Any) -> Any:
    """Sum over all rows above and all columns before: [1, row, column, channel]."""
    return input_tensor.cumsum(1).cumsum(2)


def dropout(
    input_tensor: Any,
    *,
    probability: float,
    scale: float,
    seed: int,
    use_per_device_seed: bool = True,  # noqa: ARG001 - torch draws other numbers in any case
) -> Any:
    """Scale numbers, and replace some by zero: the same ones for the same seed."""
    torch = import_module("torch")
    generator = torch.Generator().manual_seed(seed)
    kept = torch.rand(input_tensor.shape, generator=generator) >= probability
    return input_tensor * scale * kept


def sample(
    input_values_tensor: Any,
    input_indices_tensor: Any,
    k: Any,
    p: Any,
    temp: Any,
    seed: int | None = None,
) -> Any:
    """Draw one of each user's k most probable entries whose sum just reaches p: its index.

    The op treats no seed as 0 does: it draws other numbers in each call.
    """
    torch = import_module("torch")
    generator = torch.Generator().manual_seed(seed) if seed else None
    users = input_values_tensor.shape[-2]
    count, share, factor = (each.float().reshape(-1, 1)[:users] for each in (k, p, temp))
    indices = input_indices_tensor.reshape(users, -1)
    scores = input_values_tensor.float().reshape(users, -1) * factor
    ordered, places = scores.sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(ordered.shape[-1])
    probable = ordered.masked_fill(ranks >= count, -math.inf).softmax(-1)
    before = probable.cumsum(-1) - probable
    probable = probable.masked_fill((before >= share) & (ranks > 0), 0)
    drawn = torch.multinomial(probable, 1, generator=generator)
    return indices.gather(-1, places.gather(-1, drawn)).reshape(1, 1, 1, users)


def transposed_convolution(  # noqa: PLR0913 - the arguments of the op
    *,
    input_tensor: Any,
    weight_tensor: Any,
    in_channels: int,
    batch_size: int,
    input_height: int,
    input_width: int,
    stride: Iterable[int] = (1, 1),
    padding: Iterable[int] = (0, 0),
    output_padding: Iterable[int] = (0, 0),
    dilation: Iterable[int] = (1, 1),
    groups: int = 1,
    bias_tensor: Any = None,
    conv_config: Any = None,
    mirror_kernel: bool = True,
    **others: Any,  # noqa: ARG001 - sizes that follow from the tensors, and where it computes
) -> tuple[Any]:
    """Convolve in the other direction: [1, 1, batch x place, channel]."""
    if len(tuple(padding)) > 2:  # noqa: PLR2004 - height and width
        raise ValueError("padding by side is not supported")
    rows = input_tensor.reshape(batch_size, input_height, input_width, -1)[..., :in_channels]
    filters = weight_tensor if mirror_kernel else weight_tensor.flip(-2, -1)
    bias = None if bias_tensor is None else bias_tensor.reshape(-1)
    torch = import_module("torch")
    answer = torch.nn.functional.conv_transpose2d(
        rows.permute(0, 3, 1, 2).float(),
        filters.float(),
        bias,
        tuple(stride),
        tuple(padding),
        tuple(output_padding),
        groups,
        tuple(dilation),
    )
    answer = activated(answer, getattr(conv_config, "activation", None))
    return (answer.permute(0, 2, 3, 1).reshape(1, 1, -1, answer.shape[1]),)


def volume_filters(
    *,
    weight_tensor: Any,
    groups: int = 1,
    C_in_block: int = 0,  # noqa: N803 - ttnn's own name
    alignment: int = TILE,
    device: Any = None,  # noqa: ARG001 - it chooses where it computes
) -> Any:
    """Arrange filters [out, in, depth, row, column] as rows: blocks of channels of each place."""
    torch = import_module("torch")
    filters = weight_tensor.new_zeros(
        weight_tensor.shape[0], weight_tensor.shape[1] * groups, *weight_tensor.shape[2:]
    )
    for place, part in enumerate(weight_tensor.chunk(groups)):
        start, count = place * weight_tensor.shape[1], weight_tensor.shape[1]
        rows = slice(place * part.shape[0], (place + 1) * part.shape[0])
        filters[rows, start : start + count] = part
    filters = filters.permute(2, 3, 4, 1, 0)
    filters = torch.nn.functional.pad(filters, (0, 0, 0, -filters.shape[3] % alignment))
    block = C_in_block or _channel_block(filters.shape[:3], filters.shape[3])
    return filters.unflatten(3, (-1, block)).permute(3, 0, 1, 2, 4, 5).flatten(0, 4)


def _channel_block(kernel: Iterable[int], channels: int) -> int:
    """Return how many channels are together, if the call does not say so."""
    factor = TILE // math.gcd(math.prod(kernel), TILE)
    return min(math.lcm(L1_ALIGNMENT, factor), channels)


def volume_convolution(  # noqa: PLR0913 - the arguments of the op
    *,
    input_tensor: Any,
    weight_tensor: Any,
    bias_tensor: Any = None,
    config: Any = None,
    output_channels: int,
    kernel_size: Iterable[int],
    stride: Iterable[int] = (1, 1, 1),
    padding: Iterable[int] = (0, 0, 0),
    dilation: Iterable[int] = (1, 1, 1),
    padding_mode: str = "zeros",
    groups: int = 1,
    device: Any = None,  # noqa: ARG001 - it chooses where it computes
) -> Any:
    """Convolve volumes: [batch, depth, row, column, channel]."""
    torch = import_module("torch")
    if weight_tensor.ndim == 5:  # noqa: PLR2004 - as torch has them
        weight_tensor = volume_filters(weight_tensor=weight_tensor, groups=groups)
        config = None
    kernel, channels = tuple(kernel_size), input_tensor.shape[-1]
    rows = weight_tensor.reshape(-1, weight_tensor.shape[-1])
    aligned = len(rows) // math.prod(kernel)
    block = getattr(config, "C_in_block", 0) or _channel_block(kernel, aligned)
    filters = rows.reshape(-1, *kernel, block, rows.shape[-1]).permute(5, 0, 4, 1, 2, 3)
    filters = filters.flatten(1, 2)[:output_channels, :channels]
    depth, height, width = padding
    volumes = torch.nn.functional.pad(
        input_tensor.permute(0, 4, 1, 2, 3),
        (width, width, height, height, depth, depth),
        mode="constant" if padding_mode == "zeros" else padding_mode,
    )
    bias = None if bias_tensor is None else bias_tensor.reshape(-1, bias_tensor.shape[-1])[0]
    answer = torch.nn.functional.conv3d(
        volumes,
        filters,
        None if bias is None else bias[:output_channels],
        stride=tuple(stride),
        dilation=tuple(dilation),
    )
    return answer.permute(0, 2, 3, 4, 1)


def activated(numbers: Any, activation: Any) -> Any:
    """Return numbers after an activation: a name, a kind of unary op, or one with parameters.

    ttnn's golden functions know some kinds only, and ignore parameters.
    """
    if activation is None or activation == "":
        return numbers
    kind, parameters = _kind_and_parameters(activation)
    name = str(getattr(kind, "name", kind)).lower()
    if name in PARAMETERS_OF_ACTIVATIONS and parameters:
        return PARAMETERS_OF_ACTIVATIONS[name](numbers, *parameters)
    if parameters and name not in ACTIVATIONS_WITH_MODES:
        raise ValueError(f"the parameters {parameters} of the activation {name} are not known here")
    known = import_module("ttnn.operations.activations").get_golden_function_for_activation
    try:
        function = known(kind)
    except RuntimeError:  # it is no activation of linear layers, but may be an op
        op = NAMES_OF_ACTIVATIONS.get(name, name)
        function = getattr(getattr(import_module("ttnn"), op, None), "golden_function", None)
        if function is None:
            raise
    answer = function(numbers)
    return answer.float() if answer.dtype == import_module("torch").bool else answer


def _kind_and_parameters(activation: Any) -> tuple[Any, list[float]]:
    """Return what an activation does: it may be an object, a name, or a tuple of both."""
    if isinstance(activation, (tuple, list)):
        return activation[0], list(activation[1:])
    if hasattr(activation, "op_type"):
        return activation.op_type, activation_parameters(activation)
    return activation, []


def with_own_activations(
    golden: Callable[..., Any], arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> Callable[[], Any]:
    """Return a call of a golden function around which the activations of a binary op are applied.

    Golden functions of some releases and of some ops ignore them.
    """
    if not any(keywords.get(name) for name in ACTIVATIONS):
        return partial(golden, *arguments, **keywords)
    operands = list(arguments)
    others = {name: value for name, value in keywords.items() if name not in ACTIVATIONS}
    for place, (name, lists) in enumerate(BEFORE):
        activations = [each for key in lists for each in keywords.get(key) or ()]
        if place < len(operands):
            operands[place] = _after_all(operands[place], activations)
        elif name in others:
            others[name] = _after_all(others[name], activations)
    last = [each for key in AFTER for each in keywords.get(key) or ()]
    return lambda: _after_all(golden(*operands, **others), last)


def _after_all(numbers: Any, activations: Iterable[Any]) -> Any:
    """Return numbers after several activations; a single number becomes a tensor."""
    for activation in activations:
        torch = import_module("torch")
        tensor = numbers if isinstance(numbers, torch.Tensor) else torch.tensor(float(numbers))
        # To an activation, the answers of comparisons are numbers.
        numbers = activated(tensor.float() if tensor.dtype == torch.bool else tensor, activation)
    return numbers


def _torch_function(name: str, *names: str) -> Callable[..., Any]:
    """Return a function of torch whose parameters have these names."""

    def compute(numbers: Any, *parameters: float) -> Any:
        function = getattr(import_module("torch").nn.functional, name)
        return function(numbers, **dict(zip(names, parameters, strict=True)))

    return compute


def _where(numbers: Any, condition: Any, other: Any) -> Any:
    return import_module("torch").where(condition, numbers, other)


# Kinds of activations whose parameters change the result by more than its precision.
PARAMETERS_OF_ACTIVATIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "leaky_relu": _torch_function("leaky_relu", "negative_slope"),
    "prelu_sfpu": _torch_function("leaky_relu", "negative_slope"),
    "elu": _torch_function("elu", "alpha"),
    "celu": _torch_function("celu", "alpha"),
    "hardtanh": _torch_function("hardtanh", "min_val", "max_val"),
    "clamp_tss": lambda numbers, least, most: numbers.clamp(least, most),
    "softplus": _torch_function("softplus", "beta", "threshold"),
    "softshrink": _torch_function("softshrink", "lambd"),
    "hardshrink": _torch_function("hardshrink", "lambd"),
    "threshold": _torch_function("threshold", "threshold", "value"),
    "relu_max": lambda numbers, most: numbers.clamp(0, most),
    "relu_min": lambda numbers, least: numbers.clamp(max(least, 0)),
    "power": lambda numbers, exponent: numbers**exponent,
    "power_iterative": lambda numbers, exponent: numbers**exponent,
    "rpow": lambda numbers, base: base**numbers,
    "add_unary_sfpu": lambda numbers, other: numbers + other,
    "sub_unary_sfpu": lambda numbers, other: numbers - other,
    "mul_unary_sfpu": lambda numbers, other: numbers * other,
    "div_unary_sfpu": lambda numbers, other: numbers / other,
    "rsub": lambda numbers, other: other - numbers,
    "rdiv": lambda numbers, other: other / numbers,
    "fmod": lambda numbers, other: numbers.fmod(other),
    "remainder": lambda numbers, other: numbers.remainder(other),
    "maximum": lambda numbers, other: numbers.clamp(min=other),
    "minimum": lambda numbers, other: numbers.clamp(max=other),
    "fill": lambda numbers, value: numbers * 0 + value,
    "heaviside": lambda numbers, value: _where((numbers > 0).float(), numbers != 0, value),
    "unary_eq": lambda numbers, other: (numbers == other).float(),
    "unary_ne": lambda numbers, other: (numbers != other).float(),
    "unary_gt": lambda numbers, other: (numbers > other).float(),
    "unary_ge": lambda numbers, other: (numbers >= other).float(),
    "unary_lt": lambda numbers, other: (numbers < other).float(),
    "unary_le": lambda numbers, other: (numbers <= other).float(),
    "softcap": lambda numbers, most: most * (numbers / most).tanh(),
}

# Kinds whose parameters choose how exactly they are computed.
ACTIVATIONS_WITH_MODES: Final = frozenset(
    {"exp", "gelu", "erf", "erfc", "rsqrt", "sqrt", "sigmoid", "log", "log2", "log10", "log1p"}
    | {"tanh", "recip"}
)

# Kinds that ttnn's ops have another name for.
NAMES_OF_ACTIVATIONS: Final[Mapping[str, str]] = {
    "recip": "reciprocal",
    "logical_not_unary": "logical_not",
    "logsigmoid": "log_sigmoid",
    "abs_int32": "abs",
}


def root_mean_square_norm(
    input_tensor: Any,
    weight: Any = None,
    *,
    epsilon: float = 1e-12,
    bias: Any = None,
    residual_input_tensor: Any = None,
    **others: Any,  # noqa: ARG001 - how it computes
) -> Any:
    """Divide rows by their root mean square; weights may be in rows of 32."""
    numbers = (
        input_tensor if residual_input_tensor is None else input_tensor + residual_input_tensor
    )
    result = numbers * (numbers.pow(2).mean(-1, keepdim=True) + epsilon).rsqrt()
    width = numbers.shape[-1]
    if weight is not None:
        result = result * weight.reshape(-1)[:width]
    return result if bias is None else result + bias.reshape(-1)[:width]


def root_mean_square_norm_with_activation(
    input_tensor: Any,
    epsilon: float = 1e-5,
    weight: Any = None,
    bias: Any = None,
    residual_input_tensor: Any = None,
    *,
    activation: Any = None,
) -> Any:
    """Divide rows by their root mean square, then apply an activation."""
    norm = root_mean_square_norm(
        input_tensor,
        weight,
        epsilon=epsilon,
        bias=bias,
        residual_input_tensor=residual_input_tensor,
    )
    return activated(norm, activation)


def squares(
    input_tensor: Any,
    *,
    residual_input_tensor: Any = None,
    is_sharded: bool = False,
    **others: Any,  # noqa: ARG001 - they choose how it computes
) -> Any:
    """Return a tile with the sum of each row's squares; their mean if the input is sharded."""
    if residual_input_tensor is not None:
        input_tensor = input_tensor + residual_input_tensor
    return _in_first_column(input_tensor**2, is_mean=is_sharded)


def squares_and_sums(
    input_tensor: Any,
    *,
    residual_input_tensor: Any = None,
    is_sharded: bool = False,
    **others: Any,  # noqa: ARG001 - they choose how it computes
) -> Any:
    """Return a tile of sums of squares and one of sums; if sharded, means, these first."""
    if residual_input_tensor is not None:
        input_tensor = input_tensor + residual_input_tensor
    parts = [_in_first_column(each, is_mean=is_sharded) for each in (input_tensor**2, input_tensor)]
    return import_module("torch").cat(parts[::-1] if is_sharded else parts, -1)


def _in_first_column(rows: Any, *, is_mean: bool) -> Any:
    tile = rows.new_zeros(*rows.shape[:-1], TILE)
    tile[..., 0] = rows.mean(-1) if is_mean else rows.sum(-1)
    return tile


def scatter(
    input: Any,  # noqa: A002 - ttnn's own name
    dim: int,
    index: Any,
    src: Any,
    *,
    reduce: Any = None,
) -> Any:
    """Write numbers at places along a dimension, or combine them with those that are there."""
    places = index.to(import_module("torch").int64)
    if reduce is None:
        return input.scatter(dim, places, src.to(input.dtype))
    way = REDUCTIONS[str(getattr(reduce, "name", reduce)).lower()]
    return input.scatter_reduce(dim, places, src.to(input.dtype), way)


def largest_first(  # noqa: PLR0913 - the arguments of the op
    input_tensor: Any,
    k: int = 32,
    dim: int = -1,
    largest: bool = True,  # noqa: FBT001, FBT002 - the signature of the op
    sorted: bool = True,  # noqa: A002, ARG001, FBT001, FBT002 - the device sorts in any case
    *,
    stable: bool = False,
    indices_tensor: Any = None,
    **others: Any,  # noqa: ARG001 - they choose where it computes
) -> tuple[Any, Any]:
    """Return the largest numbers, or the smallest, in order, and their places or labels."""
    torch = import_module("torch")
    if stable:
        values, places = torch.sort(input_tensor, dim=dim, descending=largest, stable=True)
        values, places = values.narrow(dim, 0, k), places.narrow(dim, 0, k)
    else:
        values, places = torch.topk(input_tensor, k, dim=dim, largest=largest, sorted=True)
    if indices_tensor is not None:
        places = torch.gather(indices_tensor.to(torch.int64), dim, places)
    return values, places


@dataclass(frozen=True, slots=True)
class Sides:
    """How many rows and columns are added at each side of an image."""

    top: int
    bottom: int
    left: int
    right: int

    @classmethod
    def of(cls, padding: Iterable[int]) -> Sides:
        """Return the sides of two or four numbers."""
        sizes = tuple(padding)
        if len(sizes) == 2:  # noqa: PLR2004 - height and width
            return cls(sizes[0], sizes[0], sizes[1], sizes[1])
        return cls(*sizes)

    def around(self, images: Any, value: float) -> Any:
        """Return images with the sides filled."""
        pad = import_module("torch").nn.functional.pad
        return pad(images, (self.left, self.right, self.top, self.bottom), value=value)


def _images(rows: Any, batch: int, height: int, width: int, channels: int) -> Any:
    """Return [batch, channel, row, column] of rows of channels."""
    return rows.reshape(batch, height, width, -1)[..., :channels].permute(0, 3, 1, 2)


def _rows(images: Any) -> Any:
    """Return rows of channels: [1, 1, batch x row x column, channel]."""
    return images.permute(0, 2, 3, 1).reshape(1, 1, -1, images.shape[1])


def _started_inside(images: Any, sizes: tuple[int, int], stride: Any, sides: Sides) -> Any:
    """Drop windows that start behind the image, which a rounded-up size may have."""
    for axis, size, before in ((2, sizes[0], sides.top), (3, sizes[1], sides.left)):
        count = images.shape[axis]
        if (count - 1) * tuple(stride)[axis - 2] >= size + before:
            images = images.narrow(axis, 0, count - 1)
    return images


def average_pool(  # noqa: PLR0913, PLR0917 - the arguments of the op
    input_tensor: Any,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool = False,  # noqa: FBT001, FBT002 - the signature of the op
    count_include_pad: bool = True,  # noqa: FBT001, FBT002 - likewise
    divisor_override: int | None = None,
    **others: Any,  # noqa: ARG001 - they choose where it computes
) -> Any:
    """Average the numbers of each window; padding counts only if that is asked for."""
    torch, sides = import_module("torch"), Sides.of(padding)
    images = _images(input_tensor, batch_size, input_h, input_w, channels)

    def sums(numbers: Any) -> Any:
        found = torch.nn.functional.avg_pool2d(
            numbers, tuple(kernel_size), tuple(stride), ceil_mode=ceil_mode, divisor_override=1
        )
        return _started_inside(found, (input_h, input_w), stride, sides)

    divisors: Any = divisor_override
    if divisor_override is None:
        ones = sides.around(torch.ones_like(images[:1, :1]), float(count_include_pad))
        divisors = sums(ones)
    averages = sums(sides.around(images, 0.0)) / divisors
    return _rows(averages)


def max_pool(  # noqa: PLR0913, PLR0917 - the arguments of the op
    input_tensor: Any,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any = (1, 1),
    ceil_mode: bool = False,  # noqa: FBT001, FBT002 - the signature of the op
    return_indices: bool = False,  # noqa: FBT001, FBT002 - likewise
    **others: Any,  # noqa: ARG001 - they choose where it computes
) -> Any:
    """Return the largest number of each window, and its place in the image."""
    torch, sides = import_module("torch"), Sides.of(padding)
    images = _images(input_tensor, batch_size, input_h, input_w, channels)
    wide = sides.around(images.float(), -math.inf)
    found = torch.nn.functional.max_pool2d(
        wide,
        tuple(kernel_size),
        tuple(stride),
        dilation=tuple(dilation),
        ceil_mode=ceil_mode,
        return_indices=True,
    )
    values, places = (_started_inside(x, (input_h, input_w), stride, sides) for x in found)
    if not return_indices:
        return _rows(values)
    columns = wide.shape[-1]
    places = (places // columns - sides.top) * input_w + places % columns - sides.left
    return _rows(values), _rows(places)


def _adaptive(pool: str) -> GoldenOverride:
    def compute(
        input_tensor: Any,
        batch_size: int,
        input_h: int,
        input_w: int,
        channels: int,
        output_size: Any,
        **others: Any,  # noqa: ARG001 - they choose where it computes
    ) -> Any:
        functions = import_module("torch").nn.functional
        images = _images(input_tensor, batch_size, input_h, input_w, channels)
        answer = getattr(functions, pool)(images, tuple(output_size))
        return _rows(answer)

    return compute


def sample_grid(  # noqa: PLR0913 - the arguments of the op
    input_tensor: Any,
    grid: Any,
    *,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
    use_precomputed_grid: bool = False,
    batch_output_channels: bool = False,
) -> Any:
    """Return what images [batch, row, column, channel] have at the points of a grid.

    The last dimension of the grid has one or more points: their x and y, or what was computed of
    them before. Their outputs go into the rows, or into the channels.
    """
    torch = import_module("torch")
    size = 6 if use_precomputed_grid and mode == "bilinear" else 2
    batch, rows, columns = grid.shape[:3]
    points = grid.reshape(batch, rows, -1, size)
    if use_precomputed_grid:
        answer = _sampled_before(input_tensor.float(), points)
    else:
        images = input_tensor.permute(0, 3, 1, 2).float()
        answer = torch.nn.functional.grid_sample(
            images, points.float(), mode, padding_mode, align_corners
        ).permute(0, 2, 3, 1)
    factor = points.shape[2] // columns
    if not batch_output_channels:
        return answer
    return answer.reshape(batch, rows, -1, input_tensor.shape[-1] * factor)


def _sampled_before(images: Any, points: Any) -> Any:
    """Return images at points: row and column, as bits, then the weights of the four next pixels.

    Without weights it is the one pixel.
    """
    torch = import_module("torch")
    batch, height, width, channels = images.shape
    row, column = points[..., :2].contiguous().view(torch.int16).to(torch.int64).unbind(-1)
    weights = points[..., 2:].float()

    def pixels(rows: Any, columns: Any) -> Any:
        inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
        places = rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)
        chosen = places.reshape(batch, -1, 1).expand(-1, -1, channels)
        values = images.reshape(batch, -1, channels).gather(1, chosen)
        return values.reshape(*places.shape, channels) * inside[..., None]

    if not weights.shape[-1]:
        return pixels(row, column)
    corners = [(row + down, column + right) for down in (0, 1) for right in (0, 1)]
    parts = zip(corners, weights.split(1, dim=-1), strict=True)
    return sum(weight * pixels(*corner) for corner, weight in parts)


def deformable_attention(value: Any, grid: Any, attn: Any, *, align_corners: bool = False) -> Any:
    """Sum what images have at the points of each query, weighted: [batch, query, channel]."""
    batch, queries, points = attn.shape
    sampled = sample_grid(value, grid, align_corners=align_corners)
    return (sampled.reshape(batch, queries, points, -1) * attn[..., None].float()).sum(2)


def multiplied(numbers: Any, weight: Any, bias: Any = None) -> Any:
    """Multiply by weights and add a row; several inputs are joined in whole tiles of columns."""
    torch = import_module("torch")
    if isinstance(numbers, (list, tuple)):
        pad = torch.nn.functional.pad
        numbers = torch.cat([pad(part, (0, -part.shape[-1] % TILE)) for part in numbers], -1)
    product = numbers @ weight.reshape(weight.shape[-2:])
    return product if bias is None else product + bias.reshape(-1)


def after_product(product: Any, options: Mapping[str, Any]) -> Any:
    """Do what is fused with a product: activate, gate, scale and add, and divide into chunks."""
    product = activated(product, options.get("fused_activation"))
    if options.get("fuse_swiglu"):  # tiles of gates and of numbers by turns
        gates, numbers = product.unflatten(-1, (-1, 2, TILE)).unbind(-2)
        gates = import_module("torch").nn.functional.silu(gates)
        product = (gates * numbers).flatten(-2)
    residual, gate = (options.get(f"addcmul_input_tensor{place}") for place in (1, 2))
    if residual is not None:
        scalar = options.get("scalar") or options.get("fused_ternary_scalar") or 1.0
        product = residual + scalar * product * gate
    chunks, sizes = options.get("chunks"), options.get("chunk_sizes")
    if not chunks:
        return product
    dim = options.get("dim", -1)
    return list(product.split(list(sizes), dim) if sizes else product.chunk(chunks, dim))


def minimal_product(
    input_tensor: Any, weight_tensor: Any, *, bias_tensor: Any = None, **options: Any
) -> Any:
    """Multiply matrices, and do what is fused with it."""
    return after_product(multiplied(input_tensor, weight_tensor, bias_tensor), options)


def product_in_chunks(
    input_tensor: Any, weight_tensor: Any, *, chunks: int = 1, **options: Any
) -> Any:
    """Multiply matrices, and divide the columns."""
    return minimal_product(input_tensor, weight_tensor, chunks=chunks, **options)


def product_and_sum(
    matmul_input_tensor: Any,
    matmul_weight_tensor: Any,
    scalar: float,
    addcmul_input_tensor1: Any,
    addcmul_input_tensor2: Any,
    bias_tensor: Any = None,
) -> Any:
    """Multiply matrices, gate and scale the product, and add it to a residual."""
    product = multiplied(matmul_input_tensor, matmul_weight_tensor, bias_tensor)
    return addcmul_input_tensor1 + scalar * product * addcmul_input_tensor2


def sum_in_parts(input: Any, *, dim: int, split_output_width: int) -> Any:  # noqa: A002 - ttnn's own name
    """Sum over a dimension, and divide the columns."""
    return list(input.sum(dim=dim, keepdim=True).split(split_output_width, -1))


def sum_of_experts(
    input_tensor: Any,
    dim: int,
    *,
    split_size: int,
    output_memory_config: Any = None,  # noqa: ARG001 - it chooses where it computes
) -> Any:
    """Sum over a dimension, and divide the columns."""
    return sum_in_parts(input_tensor, dim=dim, split_output_width=split_size)


def part(
    input_tensor: Any,
    padded_slice_start: Iterable[int],
    padded_slice_end: Iterable[int],
    padded_slice_step: Iterable[int] | None = None,
) -> Any:
    """Return the numbers from one place to another."""
    starts, ends = tuple(padded_slice_start), tuple(padded_slice_end)
    steps = (1,) * len(starts) if padded_slice_step is None else tuple(padded_slice_step)
    return input_tensor[tuple(map(slice, starts, ends, steps))]


def places_of_largest(
    input_tensor: Any,
    *,
    k: int,
    valid_length: int | None = None,
    **others: Any,
) -> Any:
    """Return the places of the largest numbers, largest first; none for minus infinity."""
    if any(name.startswith("valid") for name in others):
        raise ValueError("lengths that are in tensors are not supported")
    torch = import_module("torch")
    values, places = torch.topk(input_tensor[..., :valid_length], k, dim=-1, sorted=True)
    return places.masked_fill(values == -math.inf, NOWHERE[1])


def scores_of_groups(  # noqa: PLR0913 - the arguments of the op
    q: Any,
    k: Any,
    *,
    num_groups: int,
    chunk_start_idx: int | None = None,
    scale: float = 1.0,
    block_size: int = 0,
    cache_batch_idx: int | None = None,
    kv_len: int | None = None,
    **others: Any,
) -> Any:
    """Sum the products of queries and keys in each group of heads; of blocks, return the largest.

    The block of a query itself is always the largest.
    """
    torch = import_module("torch")
    products = q @ _keys(k, chunk_start_idx, cache_batch_idx, kv_len, others)
    scores = _causal(products.unflatten(1, (num_groups, -1)).sum(2) * scale, chunk_start_idx)
    if not block_size:
        return scores
    pooled = scores.unflatten(-1, (-1, block_size)).amax(-1)
    rows = torch.arange(scores.shape[-2])
    pooled[:, :, rows, (int(chunk_start_idx or 0) + rows) // block_size] = math.inf
    return pooled


def gated_scores(
    q: Any,
    k: Any,
    weights: Any,
    *,
    chunk_start_idx: int | None = None,
    cache_batch_idx: int | None = None,
    kv_len: int | None = None,
    **others: Any,
) -> Any:
    """Sum the positive products of queries and keys over all heads, each with its gate."""
    products = q @ _keys(k, chunk_start_idx, cache_batch_idx, kv_len, others)
    return _causal((products.relu() * weights).sum(1, keepdim=True), chunk_start_idx)


def _keys(
    keys: Any, start: int | None, slot: int | None, length: int | None, others: Mapping[str, Any]
) -> Any:
    if start is None or length is not None or others.keys() - {"seq_shard_axes"}:
        raise ValueError("a start that depends on the chip, and parts of a cache, are unsupported")
    chosen = keys if slot is None else keys[slot : slot + 1]
    return chosen.transpose(-2, -1)


def _causal(scores: Any, start: int | None) -> Any:
    torch = import_module("torch")
    rows, columns = (torch.arange(size) for size in scores.shape[-2:])
    return scores.masked_fill(columns > int(start or 0) + rows[:, None], -math.inf)


def experts_of_groups(  # noqa: PLR0913 - the arguments of the op
    scores: Any,
    bias: Any,
    *,
    n_groups: int = 8,
    summed_experts_per_group: int = 2,
    topk_groups: int = 4,
    n_activated_experts: int = 8,
    route_scale: float = 1.0,
    epsilon: float = 1e-20,
    **others: Any,
) -> tuple[Any, Any]:
    """Choose experts within the groups with the best ones; return their weights and numbers."""
    if others.get("padding_config") is not None or others.get("stable_sort"):
        raise ValueError("padding and stable sorting are not supported")
    torch = import_module("torch")
    is_sigmoid = others.get("score_func", "sigmoid") == "sigmoid"
    softplus = torch.nn.functional.softplus
    activated_scores = scores.sigmoid() if is_sigmoid else softplus(scores).sqrt()
    grouped = (activated_scores + bias).unflatten(-1, (n_groups, -1))
    best = grouped.topk(summed_experts_per_group, dim=-1).values.sum(-1)
    chosen = torch.zeros_like(best).scatter(-1, best.topk(topk_groups, dim=-1).indices, 1)
    allowed = grouped.masked_fill(chosen[..., None] == 0, -math.inf).flatten(-2)
    experts = allowed.topk(n_activated_experts, dim=-1).indices
    weights = activated_scores.gather(-1, experts)
    weights = weights / (weights.sum(-1, keepdim=True) + epsilon) * route_scale
    return weights, experts


def count_of_experts(
    input_tensor: Any, expert_mask: Any, n_routed_experts: int, num_experts_per_token: int
) -> Any:
    """Count how often each expert is chosen, if it is among those of this group."""
    torch = import_module("torch")
    chosen = input_tensor[..., :num_experts_per_token].to(torch.int64).flatten()
    counts = torch.bincount(chosen, minlength=n_routed_experts)[:n_routed_experts]
    return counts * (expert_mask.flatten()[:n_routed_experts] >= 0)


def weighted_experts(
    combine_output: Any,
    weights: Any,
    indices: Any = None,
    expert_dispatch_table: Any = None,
    *,
    expert_dim: int = 3,
    output_memory_config: Any = None,  # noqa: ARG001 - it chooses where it computes
) -> Any:
    """Sum the outputs of experts with their weights; those of other chips do not count."""
    torch = import_module("torch")
    factors = weights.reshape(combine_output.shape[:-1])[..., None]
    counts = factors != 0
    if indices is not None and expert_dispatch_table is not None:
        table = expert_dispatch_table.flatten()
        numbers = indices.reshape(combine_output.shape[:-1]).to(torch.int64)
        counts = (table[numbers] != -1)[..., None]
    return torch.where(counts, combine_output * factors, 0.0).sum(expert_dim)


def ranked_router(
    input_tensor: Any, *, weight_tensor: Any, bias_tensor: Any, k: int, num_experts: int
) -> tuple[Any, Any]:
    """Return the experts with the largest products, and the softmax of these."""
    logits = multiplied(input_tensor, weight_tensor)[..., :num_experts] + bias_tensor
    values, experts = logits.topk(k, dim=-1, sorted=True)
    return experts, values.softmax(-1)


def sums_and_squares(input_tensor: Any, recip_tensor: Any = None, **others: Any) -> Any:  # noqa: ARG001 - it is made of counts
    """Return a tile of sums and one of sums of squares."""
    parts = [_in_first_column(each, is_mean=False) for each in (input_tensor, input_tensor**2)]
    return import_module("torch").cat(parts, -1)


def norm_of_sums(
    input_tensor: Any,
    stats: Any,
    *,
    weight: Any = None,
    bias: Any = None,
    epsilon: float = 1e-5,
) -> Any:
    """Divide rows less their mean by their size, which follow from the sums of all chips."""
    tiles = stats.unflatten(-1, (-1, 2, TILE))[..., 0]
    count = input_tensor.shape[-1] * tiles.shape[-2]
    mean, square = (tiles.sum(-2) / count).split(1, -1)
    result = (input_tensor - mean) * (square - mean**2 + epsilon).rsqrt()
    result = result if weight is None else result * weight.reshape(-1)
    return result if bias is None else result + bias.reshape(-1)


def latent_attention(  # noqa: PLR0913 - the arguments of the op
    input_tensor_q: Any,
    input_tensor_k: Any,
    head_dim_v: Any = None,
    *,
    input_tensor_v: Any = None,
    attn_mask: Any = None,
    is_causal: bool = True,
    scale: float | None = None,
) -> Any:
    """Attend to values that are a part of the keys, or given as the third or a named argument.

    As wide as the keys, they allow torch to do without a table of all scores.
    """
    torch = import_module("torch")
    value = head_dim_v if input_tensor_v is None else input_tensor_v
    if not isinstance(value, torch.Tensor):
        value = input_tensor_k[..., :value]
    filled = torch.nn.functional.pad(value, (0, input_tensor_k.shape[-1] - value.shape[-1]))
    heads = input_tensor_q.shape[1]
    key, filled = (
        each.repeat_interleave(heads // each.shape[1], dim=1) for each in (input_tensor_k, filled)
    )
    answer = torch.nn.functional.scaled_dot_product_attention(
        input_tensor_q,
        key,
        filled,
        attn_mask=attn_mask,
        is_causal=is_causal and attn_mask is None,
        scale=scale,
    )
    return answer[..., : value.shape[-1]]


def fill_pages(  # noqa: PLR0913 - the arguments of the op
    cache_tensor: Any,
    input_tensor: Any,
    page_table: Any,
    *,
    batch_idx_tensor: Any = None,
    batch_idx: int = 0,
    block_size: int | None = None,
    cache_position_modulo: int | None = None,
    valid_seq_len_tensor: Any = None,
) -> Any:
    """Write the keys or values of whole prompts to the pages of their users."""
    block = block_size or cache_tensor.shape[2]
    filled = in_pages(cache_tensor, input_tensor.shape[1], block, input_tensor.shape[-1]).clone()
    users = [batch_idx] if batch_idx_tensor is None else batch_idx_tensor.flatten().tolist()
    if valid_seq_len_tensor is not None:
        input_tensor = input_tensor[:, :, : int(valid_seq_len_tensor.flatten()[0])]
    ring = None if cache_position_modulo is None else cache_position_modulo // block
    for user, row in zip(users, input_tensor, strict=True):
        for place, part in enumerate(row.split(block, dim=1)):
            page = _page(page_table, user, place if ring is None else place % ring)
            if page is not None:
                filled[page, :, : part.shape[1]] = part
    return in_pages(filled, *cache_tensor.shape[1:])


def update_pages(  # noqa: PLR0913 - the arguments of the op
    cache_tensor: Any,
    input_tensor: Any,
    *,
    update_idxs: Iterable[int] = (),
    update_idxs_tensor: Any = None,
    page_table: Any = None,
    share_cache: bool = False,
    batch_offset: int = 0,
    block_size: int | None = None,
    num_kv_heads: int | None = None,
    cache_position_modulo: int | None = None,
) -> Any:
    """Write the key or value of one token for each user at the user's position."""
    if batch_offset:
        raise ValueError("a batch offset is not supported")
    heads, block = num_kv_heads or cache_tensor.shape[1], block_size or cache_tensor.shape[2]
    updated = in_pages(cache_tensor, heads, block, input_tensor.shape[-1]).clone()
    indices = update_idxs if update_idxs_tensor is None else update_idxs_tensor.flatten().tolist()
    users = input_tensor.shape[1]
    for user, position in enumerate(map(_place, islice(indices, users))):
        if position is None:
            continue
        place, page = position, 0 if share_cache else user
        if page_table is not None:
            place = position if cache_position_modulo is None else position % cache_position_modulo
            found = _page(page_table, user, place // block)
            if found is None:
                continue
            page, place = found, place % block
        updated[page, :, place] = input_tensor[0, user, :heads]
    return in_pages(updated, *cache_tensor.shape[1:])


def in_pages(cache: Any, heads: int, block: int, size: int) -> Any:
    """Return a cache whose pages are read as other numbers of heads, places and columns.

    The memory of a page is a sequence of tiles, which are regrouped.
    """
    if tuple(cache.shape[1:]) == (heads, block, size):
        return cache
    tiles = cache.unflatten(-1, (-1, TILE)).unflatten(2, (-1, TILE)).transpose(3, 4)
    tiles = tiles.reshape(len(cache), heads, block // TILE, size // TILE, TILE, TILE)
    return tiles.transpose(3, 4).reshape(len(cache), heads, block, size)


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


adaptive_average_pool = _adaptive("adaptive_avg_pool2d")
adaptive_max_pool = _adaptive("adaptive_max_pool2d")


REDUCTIONS: Final = {
    "add": "sum",
    "sum": "sum",
    "multiply": "prod",
    "prod": "prod",
    "amin": "amin",
    "amax": "amax",
}
"""The ways to combine numbers, as torch calls them."""

# The activations of binary ops: of both operands, and of the result.
BEFORE: Final = (
    ("input_tensor_a", ("input_tensor_a_activations", "lhs_activations")),
    ("input_tensor_b", ("input_tensor_b_activations", "rhs_activations")),
)
AFTER: Final = ("activations", "post_activations", "fused_activations")
ACTIVATIONS: Final = frozenset({*AFTER, *(name for _, names in BEFORE for name in names)})


@dataclass(frozen=True, slots=True)
class AdaptedCall:
    """The arguments of a golden function."""

    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]


def _as_it_is(answer: Any, _: Mapping[str, Any]) -> Any:
    return answer


@dataclass(frozen=True, slots=True)
class Adapter:
    """The op whose golden function is called, with which arguments, and what follows."""

    golden: str
    adapt: Callable[..., AdaptedCall]
    finish: Callable[[Any, Mapping[str, Any]], Any] = _as_it_is


def product_only(
    input_tensor_a: Any, input_tensor_b: Any, *transposed: Any, **others: Any
) -> AdaptedCall:
    """Pass what a product needs; the rest follows."""
    kept = {name: value for name, value in others.items() if name.startswith("transpose_")}
    return AdaptedCall((input_tensor_a, input_tensor_b, *transposed), kept)


def with_bias_and_activation(answer: Any, keywords: Mapping[str, Any]) -> Any:
    """Add a bias of any shape, then apply the activation of the program, or that of the call."""
    bias = keywords.get("bias")
    if bias is not None:
        is_row = bias.numel() == bias.shape[-1:].numel()
        answer = answer + (bias.reshape(-1) if is_row else bias)
    fused = getattr(keywords.get("program_config"), "fused_activation", None)
    return activated(answer, fused or keywords.get("activation"))


def with_table_of_rows(input_tensor: Any, weight: Any, **others: Any) -> AdaptedCall:
    """Pass a table of any rank as rows."""
    return AdaptedCall((input_tensor, weight.reshape(-1, weight.shape[-1])), others)


def with_flat_weights(
    input_tensor: Any, *, weight: Any = None, bias: Any = None, **others: Any
) -> AdaptedCall:
    """Pass weights, which may be rows of 32 filled up to whole rows, as one vector."""
    width = input_tensor.shape[-1]
    weight, bias = (
        None if vector is None else vector.reshape(-1)[:width] for vector in (weight, bias)
    )
    return AdaptedCall((input_tensor,), {"weight": weight, "bias": bias, **others})


def with_fitting_value(input_tensor: Any, padding: Any, value: float = 0) -> AdaptedCall:
    """Pass a value that the dtype can hold: infinity, or the same bits without a sign."""
    if input_tensor.dtype.is_floating_point:
        value = math.copysign(math.inf, value) if abs(value) > LARGEST_FLOAT else value
    else:
        limits = import_module("torch").iinfo(input_tensor.dtype)
        if limits.min == 0 and -limits.max <= value < 0:
            value = int(value) + limits.max + 1
    return AdaptedCall((input_tensor, padding, value), {})


def with_one_dimension(input_tensor: Any, *arguments: Any, **others: Any) -> AdaptedCall:
    """Pass a single number as a tensor of one: its spread is unknown, not the number."""
    numbers = input_tensor if input_tensor.ndim else input_tensor.reshape(1)
    return AdaptedCall((numbers, *arguments), others)


def with_pages_as_seen(
    input_tensor_q: Any,
    input_tensor_k: Any,
    *arguments: Any,
    page_table_tensor: Any = None,
    **others: Any,
) -> AdaptedCall:
    """Pass caches in the view of the call, and a table whose empty entries can be read.

    What they lead to is behind the last position of its user.
    """
    torch = import_module("torch")
    values = [each for each in arguments[:1] if isinstance(each, torch.Tensor) and each.ndim == 4]  # noqa: PLR2004 - page, head, place, size
    rest, keywords = list(arguments[len(values) :]), dict(others)
    if page_table_tensor is not None:
        keywords["page_table_tensor"] = _without_empty(page_table_tensor)
    elif rest and isinstance(rest[-1], torch.Tensor):
        rest[-1] = _without_empty(rest[-1])
    geometry = keywords.pop("paged_cache_geometry", None)
    heads, block = (int(getattr(geometry, name, 0)) for name in ("num_kv_heads", "block_size"))
    named = keywords.get("input_tensor_v")
    caches = [input_tensor_k, *values]
    if heads and block:
        caches = [in_pages(cache, heads, block, input_tensor_q.shape[-1]) for cache in caches]
        if named is not None:
            keywords["input_tensor_v"] = in_pages(named, heads, block, input_tensor_q.shape[-1])
    return AdaptedCall((input_tensor_q, *caches, *rest), keywords)


def _without_empty(page_table: Any) -> Any:
    pages = page_table.to(import_module("torch").int64)
    for entry in NOWHERE:
        pages = pages.masked_fill(pages == entry, 0)
    return pages


def with_sums(
    input_tensor: Any, stats: Any, *, is_sharded: bool = False, **others: Any
) -> AdaptedCall:
    """Pass statistics as sums over the columns of a chip; those of sharded inputs are means."""
    sums = stats * input_tensor.shape[-1] if is_sharded else stats
    return AdaptedCall((input_tensor, sums), others)


def with_sums_behind(
    input_tensor: Any, stats: Any, *, is_sharded: bool = False, **others: Any
) -> AdaptedCall:
    """Do as ``with_sums``, with the tile of squares before that of sums."""
    if is_sharded:
        stats = stats.unflatten(-1, (-1, 2, TILE)).flip(-2).flatten(-3)
    return with_sums(input_tensor, stats, is_sharded=is_sharded, **others)


def with_edges(*arguments: Any, **keywords: Any) -> AdaptedCall:
    """Pass an image with its padding, if that is not of zeros."""
    chosen = getattr(keywords.get("conv_config"), "padding_mode", None)
    mode = str(getattr(chosen, "name", "zeros")).lower()
    keywords = {name: value for name, value in keywords.items() if name != "conv_config"}
    if "weight_tensor" in keywords and "in_channels" in keywords:
        keywords["weight_tensor"] = _with_all_channels(**keywords)
        keywords |= _as_rows(**keywords)
    if mode == "zeros":
        return AdaptedCall(arguments, keywords)
    height, width = keywords["input_height"], keywords["input_width"]
    padding = keywords["padding"]
    sides = Sides.of((padding, padding) if isinstance(padding, int) else padding)
    rows = keywords["input_tensor"].reshape(keywords["batch_size"], height, width, -1)
    pad = import_module("torch").nn.functional.pad
    edges = (sides.left, sides.right, sides.top, sides.bottom)
    images = pad(rows.permute(0, 3, 1, 2), edges, mode=mode)
    changed = {
        "input_tensor": images.permute(0, 2, 3, 1),
        "input_height": images.shape[2],
        "input_width": images.shape[3],
        "padding": (0, 0),
    }
    return AdaptedCall(arguments, keywords | changed)


def _as_rows(  # noqa: PLR0913 - the arguments of the op
    *,
    input_tensor: Any,
    kernel_size: Any,
    batch_size: int,
    input_height: int,
    input_width: int,
    stride: Any = (1, 1),
    padding: Any = (0, 0),
    **others: Any,  # noqa: ARG001 - the rest of a convolution's arguments
) -> dict[str, Any]:
    """Return the sizes of rows that are not those of the images, but which ttnn only multiplies.

    A filter of one pixel sees no neighbors, so that ttnn takes as many rows as there are.
    """
    rows = math.prod(input_tensor.shape[:-1])
    is_product = {*_numbers(kernel_size), *_numbers(stride)} == {1} and not any(_numbers(padding))
    if not is_product or rows == batch_size * input_height * input_width:
        return {}
    return {"batch_size": 1, "input_height": rows, "input_width": 1}


def _numbers(sizes: Any) -> tuple[int, ...]:
    return (sizes,) if isinstance(sizes, int) else tuple(sizes)


def _with_all_channels(
    *,
    weight_tensor: Any,
    in_channels: int,
    groups: int = 1,
    **others: Any,  # noqa: ARG001 - the rest of a convolution's arguments
) -> Any:
    """Return filters with zeros for channels that they do not have."""
    lacking = in_channels // groups - weight_tensor.shape[1]
    pad = import_module("torch").nn.functional.pad
    return pad(weight_tensor, (0, 0, 0, 0, 0, max(lacking, 0)))


def with_activation(answer: Any, keywords: Mapping[str, Any]) -> Any:
    """Apply the activation of a convolution to its output, which may be in a list."""
    activation = getattr(keywords.get("conv_config"), "activation", None)
    if isinstance(answer, list):
        return [activated(each, activation) for each in answer]
    return activated(answer, activation)


def as_conv2d(
    *,
    weight_tensor: Any,
    input_length: int,
    kernel_size: int,
    stride: int = 1,
    padding: Any = 0,
    dilation: int = 1,
    **others: Any,
) -> AdaptedCall:
    """Pass the arguments of a convolution over a length as one over rows of one column."""
    sides = (padding, padding) if isinstance(padding, int) else tuple(padding)
    sides = sides * 2 if len(sides) == 1 else sides
    filters = weight_tensor.reshape(*weight_tensor.shape[:2], -1, 1)
    keywords = {
        "weight_tensor": filters,
        "input_height": input_length,
        "input_width": 1,
        "kernel_size": (kernel_size, 1),
        "stride": (stride, 1),
        "padding": (*sides, 0, 0),
        "dilation": (dilation, 1),
    }
    return with_edges(**{**others, **keywords})


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
    """Return a page or a position; None for an entry that stands for no place."""
    if entry in NOWHERE:
        return None
    if entry < 0:
        raise ValueError(f"there is no page and no position {entry}")
    return entry
