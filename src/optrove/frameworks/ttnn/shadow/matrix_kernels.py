"""Compute convolutions, attention, rope, pools, group norm and others as ttnn's kernels do.

These kernels take several steps, and write intermediate results to L1. The order of the
steps, their blocks and formats are those of ttnn 0.78; calls of forms that are not known here are
left to the golden function.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.ttnn.shadow import arithmetic as unit
from optrove.frameworks.ttnn.shadow.arithmetic import EXACT_PRODUCTS, MatrixUnit, torch
from optrove.frameworks.ttnn.shadow.golden_overrides import Sides
from optrove.frameworks.ttnn.shadow.hardware import (
    FUNCTIONS,
    FUSED,
    NARROW,
    PHASES,
    Compute,
    HardwareCall,
    Kernel,
    activated,
    activation_name,
    pack,
)
from optrove.frameworks.ttnn.shadow.vector_unit import exp, look_up, reciprocal_fast
from optrove.model.ttnn_classes import TILE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Elements of the unfolded patches of one image, and of filters over all channels: with more, torch
# convolves.
MOST_PATCHES: Final = 1 << 26

# Rows of a group norm: with more, they are on several cores.
MOST_PLACES: Final = 1 << 12

NO_SIDES: Final = Sides(0, 0, 0, 0)

# Below, the fast exponential is zero.
LOWEST_EXPONENT: Final = -87.5


def masked_softmax(call: HardwareCall) -> Any:
    """Return the softmax of rows, which are scaled and added to a mask before."""
    values, scale, mask = call.take("input_tensor", "scale", "mask")
    return _masked_softmax(call, values, 1.0 if scale is None else float(scale), mask)


def attention_softmax(call: HardwareCall) -> Any:
    """Return the softmax of attention scores, divided by the root of the size of a head."""
    (values,) = call.take("input_tensor")
    size = call.keywords.get("head_size")
    scale = 1.0 if size is None else float(size) ** -0.5
    return _masked_softmax(call, values, scale, call.keywords.get("attention_mask"))


def _masked_softmax(call: HardwareCall, values: Any, scale: float, mask: Any) -> Any:
    if mask is None or call.output != "BFLOAT16" or call.has("causal_mask"):
        return None
    values, mask = values.to(torch.float32), mask.to(torch.float32)
    given = call.facts.configuration
    kernel = Kernel(Compute.of(call, "HiFi4", approximate=given is None))
    scaled = kernel.multiply(values, _truncated(scale))
    scores = kernel.add(kernel.kept(scaled), mask)
    scores = kernel.add(kernel.kept(scores), -kernel.kept(scores.amax(-1, keepdim=True)))
    exponentials = kernel.function("exp", scores)
    exponentials = torch.where(scores < LOWEST_EXPONENT, 0.0, exponentials)
    inverse = kernel.function("reciprocal", kernel.core.sum_rows(exponentials))
    return unit.half_away(kernel.multiply(exponentials, inverse))


def rotary_embedding(call: HardwareCall) -> Any:
    """Rotate the two halves of each head by the angles of its place."""
    values, cosines, sines, token = call.take(
        "input_tensor", "cos_cache", "sin_cache", "token_index"
    )
    start, count = (0, values.shape[-2]) if token is None else (int(token), 1)
    cosines, sines = (table[..., start : start + count, :] for table in (cosines, sines))
    halves = values.chunk(2, dim=-1)
    turned = torch.cat((-unit.flushed(halves[1]), halves[0]), dim=-1)
    return _rotated(call, Kernel(Compute.of(call, "HiFi4")), values, turned, cosines, sines)


def rotary_embedding_llama(call: HardwareCall) -> Any:
    """Rotate the pairs of each head; the pairs are turned by a product with a matrix."""
    values, cosines, sines, matrix = call.take(
        "input_tensor", "cos_cache", "sin_cache", "trans_mat"
    )
    kernel = Kernel(Compute.of(call, "HiFi4"))
    matrices = matrix.reshape(-1, TILE, TILE)
    if call.has("is_decode_mode"):
        users = values.shape[1]
        cosines, sines = (table[:, :users, :1] for table in (cosines, sines))
        matrices = matrices[:users, None]
    else:
        places = values.shape[2]
        cosines, sines = (table[:, :, :places] for table in (cosines, sines))
        matrices = matrices[0]
    turned = kernel.core.matmul(values.unflatten(-1, (-1, TILE)), matrices, TILE).flatten(-2)
    return _rotated(call, kernel, values, kernel.kept(turned), cosines, sines)


def _rotated(
    call: HardwareCall, kernel: Kernel, values: Any, turned: Any, cosines: Any, sines: Any
) -> Any:
    straight, across = kernel.multiply(values, cosines), kernel.multiply(turned, sines)
    return pack(unit.half_away(kernel.add(kernel.kept(straight), kernel.kept(across))), call.output)


def minimal_matmul(call: HardwareCall) -> Any:
    """Multiply matrices in float32; blocks of the inner dimension are summed in L1."""
    left, right = call.take("input_tensor", "weight_tensor")
    bias, activation = call.keywords.get("bias_tensor"), call.keywords.get("fused_activation")
    unknown = call.has("fuse_swiglu", "fused_ternary_scalar", "optional_input_tensor")
    if unknown or activation is not None or isinstance(left, (list, tuple)):
        return None
    compute = Compute.of(call, "HiFi2", wide=True)
    core = Kernel(compute).core
    block = int(getattr(call.keywords.get("config"), "K_block_size", 8)) * TILE
    product = replace(core, blocks_in_l1=True).matmul(left, right, block, keeps_last=True)
    if bias is not None:
        product = unit.add(unit.nineteen_bits(product), bias.reshape(-1), wide=compute.wide)
    return pack(unit.half_away(product), call.output)


@dataclass(frozen=True, slots=True)
class Convolution:
    """The sizes of a convolution of images, whose rows are [batch x row x column, channel]."""

    batch: int
    height: int
    width: int
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    sides: Sides
    groups: int

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> Convolution:
        """Return the sizes that a call has; one over a length is one over rows of one column."""
        if "input_length" in keywords:
            return cls(
                int(keywords["batch_size"]),
                int(keywords["input_length"]),
                1,
                (_pair(keywords.get("stride"), 1)[0], 1),
                (_pair(keywords.get("dilation"), 1)[0], 1),
                Sides.of((*_pair(keywords.get("padding"), 0)[:2], 0, 0)),
                int(keywords.get("groups") or 1),
            )
        return cls(
            int(keywords["batch_size"]),
            int(keywords["input_height"]),
            int(keywords["input_width"]),
            _pair(keywords.get("stride"), 1),
            _pair(keywords.get("dilation"), 1),
            Sides.of(_pair(keywords.get("padding"), 0)),
            int(keywords.get("groups") or 1),
        )

    def images(self, rows: Any, channels: int) -> Any:
        """Return images with their padding: [batch, channel, row, column]."""
        shape = (self.batch, self.height, self.width, -1)
        images = rows.reshape(shape)[..., :channels].permute(0, 3, 1, 2)
        return self.sides.around(images, 0.0)

    def matmul(self, core: MatrixUnit, images: Any, filters: Any) -> Any:
        """Return rows of output channels: the product of patches and filters.

        The inner dimension is the rows of a filter, each of which fills whole tiles: its columns,
        and the channels of each.
        """
        height, width = filters.shape[2:]
        short = -(width * filters.shape[1]) % TILE
        rows = filters.permute(2, 3, 1, 0).flatten(1, 2)
        right = torch.nn.functional.pad(rows, (0, 0, 0, short)).flatten(0, 1)
        found = []
        for image in images:
            patches = torch.nn.functional.unfold(
                image[None], (height, width), dilation=self.dilation, stride=self.stride
            )
            patches = patches.view(len(image), height, width, -1).permute(3, 1, 2, 0).flatten(2)
            left = torch.nn.functional.pad(patches, (0, short)).flatten(1)
            found.append(core.matmul(left, right, left.shape[-1]))
        return torch.cat(found)

    def by_torch(self, core: MatrixUnit, images: Any, filters: Any) -> Any:
        """Return the same rows with the bits of the fidelity, but without roundings between."""
        convolve = partial(
            torch.nn.functional.conv2d,
            stride=self.stride,
            dilation=self.dilation,
            groups=self.groups,
        )
        found = sum(convolve(*pair) for pair in core.passes(images, filters))
        return found.permute(0, 2, 3, 1).flatten(0, 2)

    def is_exact(self, core: MatrixUnit, images: Any, filters: Any) -> bool:
        """Return whether patches are small enough to be multiplied one by one."""
        span = [
            (images.shape[axis] - self.dilation[axis - 2] * (filters.shape[axis] - 1) - 1)
            // self.stride[axis - 2]
            + 1
            for axis in (2, 3)
        ]
        inner = filters.shape[2] * -(-filters.shape[3] * images.shape[1] // TILE) * TILE
        patches = span[0] * span[1] * inner
        products = patches * len(images) * len(filters) * core.phases
        largest = max(patches, filters.numel() * self.groups)
        return bool(largest <= MOST_PATCHES and products <= EXACT_PRODUCTS)


def _pair(sizes: Any, default: int) -> tuple[int, ...]:
    if sizes is None:
        return default, default
    if isinstance(sizes, int):
        return sizes, sizes
    numbers = tuple(int(size) for size in sizes)
    return numbers * 2 if len(numbers) == 1 else numbers


def convolution(call: HardwareCall) -> Any:
    """Convolve: a product of patches and filters, whose channels of other groups are zero.

    The result is a list, as that of the golden function: sizes and weights may follow.
    """
    given, configuration = call.keywords, call.keywords.get("conv_config")
    activation = activation_name(getattr(configuration, "activation", None))
    padding_mode = getattr(getattr(configuration, "padding_mode", None), "name", "ZEROS")
    rows, filters, bias = (
        given.get(name) for name in ("input_tensor", "weight_tensor", "bias_tensor")
    )
    known = activation in FUSED and padding_mode.upper() == "ZEROS"
    if not known or rows is None or filters is None or call.facts.dtypes[0] not in NARROW:
        return None
    sizes = Convolution.of(given)
    filters = unit.nineteen_bits(filters.reshape(*filters.shape[:2], filters.shape[2], -1))
    images = sizes.images(rows, int(given["in_channels"]))
    lacking = images.shape[1] // sizes.groups - filters.shape[1]
    filters = torch.nn.functional.pad(filters, (0, 0, 0, 0, 0, lacking))
    compute = Compute.of(call, "HiFi4", in_l1=False)
    core = Kernel(compute).core
    if sizes.is_exact(core, images, filters):
        product = sizes.matmul(core, images, _without_groups(filters, sizes.groups))
    else:
        product = sizes.by_torch(core, unit.flushed(images), unit.flushed(filters))
    if bias is not None:
        read = unit.nineteen_bits if compute.wide else unit.half_away
        product = unit.add(read(product), bias.reshape(-1), wide=compute.wide)
    product = activated(call, compute, product, activation)
    return [pack(product.reshape(1, 1, *product.shape), call.output)]


def _without_groups(filters: Any, groups: int) -> Any:
    """Return filters over all channels, as they are laid out in tiles."""
    if groups == 1:
        return filters
    outputs, inputs = filters.shape[:2]
    whole = filters.new_zeros(groups, outputs // groups, groups, *filters.shape[1:])
    for group, part in enumerate(filters.chunk(groups)):
        whole[group, :, group] = part
    return whole.reshape(outputs, groups * inputs, *filters.shape[2:])


@dataclass(slots=True)
class Attention:
    """The attention of rows of queries to keys, which come in chunks: flash attention.

    Scores are scaled in the exponential, which is a straight line between powers of two; what was
    summed before a larger score appears is multiplied by an accurate exponential.
    """

    kernel: Kernel
    scale: float
    inverse: Callable[[Any], Any]
    sums_in_l1: bool
    rounds: bool = True
    largest: Any = None
    sums: Any = None
    outputs: Any = None

    @property
    def core(self) -> MatrixUnit:
        """Return the matrix unit as attention uses it."""
        return replace(self.kernel.core, rounds=self.rounds)

    def attend(
        self, queries: Any, keys: Any, values: Any, hidden: Any = None, mask: Any = None
    ) -> None:
        """Add a chunk of keys and values for the last queries; a ``mask`` is added to their scores.

        ``hidden`` has a row for each of the first of these queries: the keys that it cannot see.
        """
        first = 0 if self.sums is None else self.sums.shape[-2] - queries.shape[-2]
        scores = self._product(queries, keys.transpose(-2, -1))
        if mask is not None:
            scores = unit.half_away(unit.add(scores, mask.clamp(min=-3e38)))
            scores = torch.where(mask < -1e30, -torch.inf, scores)  # noqa: PLR2004 - masked out
        if hidden is not None:
            scores[..., : len(hidden), :].masked_fill_(hidden, -torch.inf)
        largest = scores.amax(-1, keepdim=True)
        before = None if self.largest is None else self.largest[..., first:, :]
        largest = largest if before is None else torch.maximum(largest, before)
        exponentials = self._exponential(self._difference(scores, largest))
        sums = self._sums(exponentials)
        outputs = self._product(exponentials, values)
        if before is None:
            self.largest, self.sums, self.outputs = largest, sums, outputs
            return
        shrunk = unit.nearest_even(exp(self._difference(before, largest) * _truncated(self.scale)))
        sums = unit.half_away(unit.add(sums, self._multiplied(self.sums[..., first:, :], shrunk)))
        earlier = self._multiplied(self.outputs[..., first:, :], shrunk)
        if self.sums_in_l1:
            outputs = unit.nearest_even(outputs + earlier)
        else:
            outputs = unit.half_away(unit.add(earlier, outputs))
        for old, new in (
            (self.largest, largest),
            (self.sums, sums),
            (self.outputs, outputs),
        ):
            old[..., first:, :] = new

    def result(self) -> Any:
        """Return the outputs, divided by the sums of the exponentials."""
        ones = torch.ones(self.sums.shape[-1], 1)
        totals = self.core.matmul(self.sums, ones, TILE) if self.sums_in_l1 else self.sums
        return self._multiplied(self.outputs, self.inverse(unit.half_away(totals)))

    def _product(self, left: Any, right: Any) -> Any:
        return unit.half_away(self.core.matmul(left, right, left.shape[-1]))

    def _multiplied(self, left: Any, right: Any) -> Any:
        if not self.rounds:
            pairs = self.core.passes(right, left)
            return unit.half_away(sum(one * other for one, other in pairs))
        return unit.half_away(self.kernel.multiply(left, right))

    def _difference(self, left: Any, right: Any) -> Any:
        if not self.rounds:
            return unit.half_away(left - right)
        lost = left == -torch.inf
        found = unit.half_away(unit.add(left.masked_fill(lost, 0.0), -right))
        return found.masked_fill(lost, -torch.inf)

    def _exponential(self, values: Any) -> Any:
        factor = 369.329925537109375 * self.scale
        wide = values.to(torch.float64 if self.rounds else torch.float32)
        line = (wide * factor).add_(32500.818359375).to(torch.float32)
        whole = line.add_(0.5).floor_().clamp_(0, 65535).to(torch.int32)
        return unit.truncated((whole << 15).view(torch.float32))

    def _sums(self, exponentials: Any) -> Any:
        """Return the sums of a chunk; of a prompt, those of tiles only, packed one by one."""
        if not self.sums_in_l1:
            return unit.half_away(self.core.sum_rows(exponentials))
        width = exponentials.shape[-1]
        tiles = torch.nn.functional.pad(exponentials, (0, -width % TILE)).split(TILE, dim=-1)
        total = tiles[0]
        for tile in tiles[1:]:
            total = unit.nearest_even(total + tile)
        return total


def _attention_kernel(call: HardwareCall) -> tuple[Kernel, Callable[[Any], Any]]:
    """Return how attention computes, and its inverse, for which Blackhole has an instruction."""
    compute = Compute.of(call, "HiFi2", approximate=call.facts.configuration is None)
    if not compute.approximate:
        return Kernel(compute), partial(look_up, "reciprocal")
    if call.facts.arch == "blackhole":
        return Kernel(compute), lambda values: unit.truncated(1 / values)
    return Kernel(compute), partial(look_up, "reciprocal_fast")


def attention(call: HardwareCall) -> Any:
    """Attend to the keys of a prompt, chunk by chunk."""
    queries, keys, values = call.take("input_tensor_q", "input_tensor_k", "input_tensor_v")
    mask, causal = call.keywords.get("attn_mask"), call.keywords.get("is_causal", True)
    if call.has("sliding_window_size", "attention_sink", "cu_window_seqlens"):
        return None
    heads, places = queries.shape[1], keys.shape[-2]
    keys, values = (
        each.repeat_interleave(heads // each.shape[1], dim=1) for each in (keys, values)
    )
    scale = call.keywords.get("scale") or queries.shape[-1] ** -0.5
    rows, columns = (
        int(getattr(call.facts.program, name, TILE)) for name in ("q_chunk_size", "k_chunk_size")
    )
    kernel, inverse = _attention_kernel(call)
    products = queries.numel() * places * kernel.phases * (1 if causal else 2)
    state = Attention(kernel, scale, inverse, sums_in_l1=True, rounds=products <= EXACT_PRODUCTS)
    for start in range(0, places, columns):
        stop = min(start + columns, places)
        first = start // rows * rows if causal else 0
        if first >= queries.shape[-2]:
            break
        hidden = None
        if causal:
            last = min(stop, queries.shape[-2])
            hidden = torch.arange(start, stop) > torch.arange(first, last)[:, None]
        state.attend(
            queries[..., first:, :],
            keys[..., start:stop, :],
            values[..., start:stop, :],
            hidden,
            None if mask is None else mask[..., first:, start:stop] / scale,
        )
    return pack(state.result(), call.output)


def decode_attention(call: HardwareCall) -> Any:
    """Attend to the cached keys of each user, up to the user's position."""
    queries, keys, values = call.take("input_tensor_q", "input_tensor_k", "input_tensor_v")
    positions = call.keywords.get("cur_pos")
    tensor = call.keywords.get("cur_pos_tensor")
    if tensor is not None:
        positions = tensor.flatten().tolist()
    causal = call.keywords.get("is_causal", True)
    if not positions or not causal or call.has("attn_mask", "sliding_window_size"):
        return None
    if call.keywords.get("attention_sink") is not None or min(positions) < 0:
        return None
    scale = call.keywords.get("scale") or queries.shape[-1] ** -0.5
    size = int(getattr(call.facts.program, "k_chunk_size", 0) or _chunk_size(keys.shape[-2]))
    (kernel, inverse), found = _attention_kernel(call), []
    for user, position in enumerate(positions[: queries.shape[1]]):
        heads = queries[0, user].unflatten(0, (keys.shape[1], -1))
        state = Attention(kernel, scale, inverse, sums_in_l1=False)
        for start in range(0, position + 1, size):
            chunk = slice(start, min(start + size, -(-(position + 1) // TILE) * TILE))
            later = torch.arange(chunk.start, chunk.stop) > position
            hidden = later.expand(heads.shape[-2], -1)
            state.attend(heads, keys[user, :, chunk], values[user, :, chunk], hidden)
        found.append(state.result().flatten(0, 1))
    return pack(torch.stack(found)[None], call.output)


def _chunk_size(places: int) -> int:
    """Return the largest power of two that divides the places of a cache, up to 512."""
    return min(512, places & -places)


def average_pool(call: HardwareCall) -> Any:
    """Average windows: a product with a row of 1/n; large windows are summed in float32."""
    given = call.keywords
    override = given.get("divisor_override")
    sizes = Convolution.of(
        {**given, "input_height": given.get("input_h"), "input_width": given.get("input_w")}
        | {"dilation": None, "groups": None}
    )
    # With a part of the padding left out, each window has its own divisor.
    padded = sizes.sides != NO_SIDES and not override and not given.get("count_include_pad", True)
    if padded or call.has("ceil_mode") or call.arguments:
        return None
    window = _pair(given.get("kernel_size"), 1)
    count = window[0] * window[1]
    core = Kernel(Compute.of(call, "HiFi4", wide=count > TILE)).core
    scale = unit.truncated(torch.full((1, count), 1 / (override or count)))
    found = []
    for image in sizes.images(given["input_tensor"], int(given["channels"])):
        patches = torch.nn.functional.unfold(image[None], window, stride=sizes.stride)
        columns = patches.view(len(image), count, -1).transpose(0, 1).flatten(1)
        sums = unit.half_away(core.matmul(scale, columns, count))
        found.append(sums.view(len(image), -1).T)
    rows = torch.cat(found)
    return pack(rows.reshape(1, 1, *rows.shape), call.output)


def fast_sum(call: HardwareCall) -> Any:
    """Sum over outer dimensions, one tile after the other in the destination register."""
    (values,) = call.take("input")
    dims = [dim % values.dim() for dim in call.keywords["dims"]]
    compute = Compute.of(call, "HiFi4")
    if compute.wide or any(dim >= values.dim() - 2 for dim in dims):
        return None
    kept = [dim for dim in range(values.dim()) if dim not in dims]
    parts = unit.flushed(values).permute(*dims, *kept).flatten(0, len(dims) - 1)
    total = torch.zeros_like(parts[0])
    for part in parts:
        step = unit.power(torch.maximum(total.abs(), part.abs()))
        step = step.mul_(2.0**-unit.SUM).clamp_(min=unit.TINIEST)
        whole = unit.whole_half_away(total / step).add_(torch.floor(part / step + 0.5))
        total = unit.half_away(whole.mul_(step))
    shape = [1 if dim in dims else size for dim, size in enumerate(values.shape)]
    return pack(total.reshape(shape), call.output)


def product_over(call: HardwareCall) -> Any:
    """Multiply along one dimension, one element after the other."""
    values, dim = call.take("input_tensor", "dim")
    if dim is None or values.numel() > unit.EXACT_ELEMENTS:
        return None
    total, *others = values.unbind(dim)
    for other in others:
        total = unit.half_away(unit.multiply(total, other, PHASES["HiFi4"]))
    return pack(total.unsqueeze(dim) if call.has("keepdim") else total, call.output)


def group_norm(call: HardwareCall) -> Any:
    """Return groups of channels less their mean, divided by their deviation.

    A group is on one core: its tiles are added up, then the rows and columns of that tile.
    """
    (values,) = call.take("input_tensor")
    groups = int(call.keywords.get("num_groups") or 0)
    vectors = [call.keywords.get(name) for name in ("weight", "bias")]
    channels, places = values.shape[-1], values.shape[-2]
    other = call.has("use_welford") or any(x is not None and x.numel() != channels for x in vectors)
    if other or not groups or channels % groups or places > MOST_PLACES:
        return None
    compute = Compute.of(call, "HiFi4", in_l1=False, approximate=call.facts.configuration is None)
    if compute.wide:
        return None
    kernel = Kernel(compute)
    shape = values.shape
    values = values.reshape(-1, places, groups, channels // groups).transpose(1, 2)
    share = float(unit.truncated(torch.tensor([(places * channels / groups) ** -0.5])))
    values = unit.half_away(kernel.add(values, -_scalar(kernel, values, None, share)))
    small = _truncated(float(call.keywords.get("epsilon") or 1e-12))
    variance = kernel.add(_scalar(kernel, values, values, share), small)
    result = kernel.multiply(values, _old_rsqrt(variance, approximate=compute.approximate))
    result = unit.half_away(result).transpose(1, 2).reshape(shape)
    weight, bias = vectors
    if weight is not None:
        result = unit.half_away(kernel.multiply(result, weight.reshape(-1)))
    if bias is not None:
        result = unit.half_away(kernel.add(result, bias.reshape(-1)))
    return pack(result, call.output)


def _scalar(kernel: Kernel, values: Any, others: Any, share: float) -> Any:
    """Return the mean of matrices, or that of their product with others."""
    sizes = (0, -values.shape[-1] % TILE, 0, -values.shape[-2] % TILE)
    tiles, factors = (
        torch.nn.functional.pad(each, sizes).unflatten(-2, (-1, TILE)).unflatten(-1, (-1, TILE))
        for each in (values, torch.ones_like(values) if others is None else others)
    )
    total: Any = 0.0
    for row in range(tiles.shape[-4]):
        for column in range(tiles.shape[-2]):
            one, other = (each[..., row, :, column, :] for each in (tiles, factors))
            total = unit.multiply(one, other, kernel.phases, total=total)
    sums = unit.half_away(kernel.core.sum_columns(total, share))
    return unit.half_away(kernel.core.sum_rows(sums, share))


def _old_rsqrt(values: Any, *, approximate: bool) -> Any:
    """Return 1 / sqrt(x) of bfloat16 values, as kernels compute it that ask for the older one."""
    bits = values.contiguous().view(torch.int32)
    if approximate:
        root = ((bits + (127 << 23)) >> 1).view(torch.float32)
        return unit.truncated(reciprocal_fast(unit.truncated(root)))
    guess = ((0x5F37 << 16) - (bits >> 1)).view(torch.float32)
    for _ in range(2):
        guess = (guess * guess * (values * -0.5) + 1.5) * guess
    return unit.nearest_even(1 / unit.truncated(guess * values))


def _truncated(number: float) -> Any:
    return unit.truncated(torch.tensor([number]))[0]


MATRIX_FUNCTIONS: Final[Mapping[str, Callable[[HardwareCall], Any]]] = {
    "ttnn.scale_mask_softmax": masked_softmax,
    "ttnn.scale_mask_softmax_in_place": masked_softmax,
    "ttnn.transformer.attention_softmax": attention_softmax,
    "ttnn.transformer.attention_softmax_": attention_softmax,
    "ttnn.transformer.scaled_dot_product_attention": attention,
    "ttnn.transformer.scaled_dot_product_attention_decode": decode_attention,
    "ttnn.experimental.rotary_embedding": rotary_embedding,
    "ttnn.experimental.rotary_embedding_llama": rotary_embedding_llama,
    "ttnn.experimental.minimal_matmul": minimal_matmul,
    "ttnn.experimental.fast_reduce_nc": fast_sum,
    "ttnn.avg_pool2d": average_pool,
    "ttnn.group_norm": group_norm,
    "ttnn.prod": product_over,
    "ttnn.conv1d": convolution,
    "ttnn.conv2d": convolution,
}

KERNEL_FUNCTIONS: Final[Mapping[str, Callable[[HardwareCall], Any]]] = {
    **FUNCTIONS,
    **MATRIX_FUNCTIONS,
}
"""Every op whose kernel is modeled."""
