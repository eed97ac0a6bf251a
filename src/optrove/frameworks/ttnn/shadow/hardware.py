"""Compute ops as ttnn's kernels do: their rounding, passes, order of sums and formats between ops.

``HardwareNumerics`` stands between the shadow and the golden functions. For the ops that it knows
it computes the result with the arithmetic of a Tensix core; all others, and calls of forms that it
does not know, are left to the golden function. What it computes was held against the outputs of the
kernels (``benchmarks/bench_numerics.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from optrove.frameworks.ttnn.convert.memory import activation_parameters
from optrove.frameworks.ttnn.ops import op_of
from optrove.frameworks.ttnn.shadow import arithmetic as unit
from optrove.frameworks.ttnn.shadow.arithmetic import MatrixUnit, torch
from optrove.frameworks.ttnn.shadow.golden_overrides import AFTER, BEFORE
from optrove.frameworks.ttnn.shadow.vector_unit import (
    CUT,
    NEAREST,
    atan2,
    evaluate,
    exact,
    exp_fast,
    larger,
    look_up,
    product,
    quotient,
    reciprocal_fast,
    rsqrt_fast,
    smaller,
    tensor_power,
    xlogy,
)
from optrove.model.ttnn_classes import TILE

if TYPE_CHECKING:
    from collections import Counter

PHASES: Final = {"LoFi": 1, "HiFi2": 2, "HiFi3": 3, "HiFi4": 4}
BLOCK_BITS: Final = {"BFLOAT8_B": 8, "BFLOAT4_B": 4}
NARROW: Final = frozenset({"BFLOAT16", *BLOCK_BITS})
MODELED: Final = frozenset({*NEAREST, *CUT})
LARGEST_COMPARED: Final = 512

# Above this ratio of height and width, ttnn multiplies matrices on a line of cores.
NARROW_RATIO: Final = 8


@dataclass(frozen=True, slots=True)
class CallFacts:
    """What a golden function does not see of a call: formats, device and configuration."""

    arch: str
    columns: int
    dtypes: tuple[str, ...]
    in_dram: bool
    configuration: Any
    program: Any
    has_grid: bool
    shard_width: int | None = None

    def is_narrow(self) -> bool:
        """Return whether all tensors are bfloat16 or block floats."""
        return bool(self.dtypes) and NARROW.issuperset(self.dtypes)


@dataclass(frozen=True, slots=True)
class HardwareCall:
    """A call with torch arguments, its facts, and the dtype of its output."""

    facts: CallFacts
    output: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]

    def take(self, *names: str) -> list[Any]:
        """Return arguments by place or by name; None for those that are missing."""
        missing = names[len(self.arguments) :]
        found = [*self.arguments[: len(names)], *(self.keywords.get(name) for name in missing)]
        return [it.float() if isinstance(it, torch.Tensor) else it for it in found]

    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the tensors among the arguments."""
        values = (*self.arguments, *self.keywords.values())
        return [tuple(it.shape) for it in values if isinstance(it, torch.Tensor)]

    def has(self, *names: str) -> bool:
        """Return whether one of these keywords has a value."""
        return any(self.keywords.get(name) not in (None, False, [], "") for name in names)


Answer = Any
HardwareFunction = Callable[[HardwareCall], Answer]


class HardwareNumerics:
    """Computes calls of one loaded ttnn as the hardware does, where it knows how.

    ``not_modeled`` counts, by op, the results that another function computed and that were rounded;
    ``not_compared`` the results of models in forms that were not compared, or did not agree. If
    there is a list of ``kept`` answers, each is added to it with its op, None for other functions.
    """

    def __init__(
        self,
        ttnn: Any,
        functions: Mapping[str, HardwareFunction],
        not_modeled: Counter[str],
        not_compared: Counter[str],
    ) -> None:
        self.not_modeled = not_modeled
        self.not_compared = not_compared
        self.kept: list[tuple[str, Answer]] | None = None
        self._ttnn = ttnn
        self._functions = functions

    def facts(
        self, tensors: list[Any], devices: list[Any], keywords: Mapping[str, Any]
    ) -> CallFacts | None:
        """Return the facts of a call, given each tensor's device; None without one."""
        pairs = zip(tensors, devices, strict=True)
        on_device = [tensor for tensor, device in pairs if device is not None]
        if not on_device:
            return None
        device = next(device for device in devices if device is not None)
        dram = self._ttnn.DRAM_MEMORY_CONFIG
        return CallFacts(
            device.arch().name.lower(),
            int(device.compute_with_storage_grid_size().x),
            tuple(tensor.dtype.name for tensor in tensors),
            all(tensor.memory_config() == dram for tensor in on_device),
            keywords.get("compute_kernel_config") or keywords.get("compute_config"),
            keywords.get("program_config"),
            keywords.get("core_grid") is not None,
            _shard_width(on_device[0]),
        )

    def answer(
        self,
        name: str,
        facts: CallFacts,
        output: str,
        values: tuple[tuple[Any, ...], Mapping[str, Any]],
        golden: Callable[[], Any],
    ) -> Any:
        """Return the result of a call, by the hardware's arithmetic where that is known."""
        found = self.modeled(name, facts, output, values)
        if self.kept is not None:
            self.kept.append((name, found))
        if found is not None:
            shapes = HardwareCall(facts, output, *values).shapes()
            self.not_compared[name] += not agrees_with_kernels(name, facts, shapes)
            return found
        answer = golden()
        self.not_modeled[name] += not op_of(name).moves_only and _is_rounded(answer, output)
        if output in BLOCK_BITS and isinstance(answer, torch.Tensor) and answer.dim():
            return pack(unit.nearest_even(answer.to(torch.float32)), output)
        return answer

    def modeled(
        self,
        name: str,
        facts: CallFacts,
        output: str,
        values: tuple[tuple[Any, ...], Mapping[str, Any]],
    ) -> Answer | None:
        """Return the result of a call by the model of its kernel; None if there is none."""
        function = self._functions.get(name)
        # A convolution rounds weights of the host to its own format.
        narrow = facts.is_narrow() or op_of(name).kernel_rounds_weights
        if function is None or not narrow or output not in NARROW:
            return None
        return function(HardwareCall(facts, output, *values))


def agrees_with_kernels(name: str, facts: CallFacts, shapes: Iterable[tuple[int, ...]]) -> bool:
    """Return whether calls of this form were compared with the kernels, and had their bits.

    Docs: ``docs/numerics.md``. Element-wise ops were in any shape, matmuls with a program
    configuration; other ops only in small shapes whose dimensions are powers of two.
    """
    if name in ELEMENTWISE or name == "ttnn.avg_pool2d":
        return True
    op = op_of(name)
    if op.agrees_with_program and facts.program is not None:
        return True
    if op.differs_from_kernels or facts.shard_width is not None:
        return False
    if op.agrees_only_on not in (None, facts.arch):
        return False
    return all(
        size <= LARGEST_COMPARED and size & (size - 1) == 0 for shape in shapes for size in shape
    )


def _is_rounded(answer: Any, output: str) -> bool:
    """Return whether an output cannot hold a result as it is, as when an op only moves data."""
    if not isinstance(answer, torch.Tensor) or not answer.is_floating_point():
        return False
    return output == "FLOAT32" or not torch.equal(
        answer.nan_to_num(), answer.to(torch.bfloat16).to(answer.dtype).nan_to_num()
    )


def _shard_width(tensor: Any) -> int | None:
    """Return the columns of a tensor's shards; None if it has no such shards."""
    shards = tensor.memory_config().shard_spec if tensor.is_sharded() else None
    return None if shards is None else int(shards.shape[1])


def pack(values: Any, dtype: str) -> Any:
    """Return bfloat16 values as the packer writes them in a dtype."""
    bits = BLOCK_BITS.get(dtype)
    return values if bits is None else unit.block_float(unit.one_bit_less(values), bits)


def typecast(call: HardwareCall) -> Any:
    """Change the format: only block floats need more than ttnn's own packing."""
    bits = BLOCK_BITS.get(call.output)
    if bits is None:
        return None
    (values,) = call.take("input_tensor")
    exact = bits == 8 and call.facts.dtypes[0] == "BFLOAT16"  # noqa: PLR2004 - bits of bfloat8_b
    return unit.block_float(values if exact else unit.one_bit_less(values), bits)


def activations(call: HardwareCall, names: tuple[str, ...]) -> list[str] | None:
    """Return the activations under these keywords; None if one is not modeled."""
    found = []
    for each in (each for name in names for each in call.keywords.get(name) or ()):
        kind = getattr(each, "op_type", each)
        name = str(getattr(kind, "name", kind)).lower()
        if name not in MODELED or (hasattr(each, "op_type") and any(activation_parameters(each))):
            return None
        found.append(name)
    return found


def binary(call: HardwareCall, compute: Callable[[Any, Any, str], Any]) -> Any:
    """Compute an op of two operands, with the activations before and after it."""
    left, right = call.take("input_tensor_a", "input_tensor_b")
    kinds = (*(names for _, names in BEFORE), AFTER)
    before, beside, after = (activations(call, names) for names in kinds)
    if left is None or right is None or before is None or beside is None or after is None:
        return None
    # A number is read as a tile of it.
    left, right = (
        each
        if isinstance(each, torch.Tensor)
        else unit.nearest_even(torch.tensor(float(each), dtype=torch.float32))
        for each in (left, right)
    )
    for name in before:
        left = look_up(name, left, call.facts.arch)
    for name in beside:
        right = look_up(name, right, call.facts.arch)
    result = compute(left, right, call.facts.arch)
    for name in after:
        result = look_up(name, result, call.facts.arch)
    return pack(result, call.output)


def sum_of(left: Any, right: Any, _arch: str) -> Any:
    """Add on the matrix unit."""
    return unit.add(left, right)


def difference(left: Any, right: Any, _arch: str) -> Any:
    """Subtract on the matrix unit."""
    return unit.add(left, -right)


def reversed_difference(left: Any, right: Any, _arch: str) -> Any:
    """Subtract the first operand from the second."""
    return unit.add(-left, right)


# From this sum of biased exponents on, a product on the matrix unit is zero.
LOST_EXPONENTS: Final = 254 + 145


def matrix_unit_product(left: Any, right: Any, _arch: str) -> Any:
    """Multiply on the matrix unit in four passes; what is too large is infinite, or even zero."""
    result = unit.multiply(left, right, PHASES["HiFi4"])
    infinite = torch.copysign(torch.tensor(torch.inf), left.sign() * right.sign())
    result = torch.where(result.isnan(), infinite, result)
    exponents = sum(it.view(torch.int32) >> 23 & 0xFF for it in (left, right))
    return torch.where(exponents < LOST_EXPONENTS, result, 0.0)


@dataclass(frozen=True, slots=True)
class Combined:
    """An op of two operands as functions before and after a simpler one, each packed."""

    compute: Callable[[Any, Any, str], Any]
    left: str | None = None
    right: str | None = None
    last: str | None = None

    def __call__(self, left: Any, right: Any, arch: str) -> Any:
        """Return the result as bfloat16 values."""
        left = left if self.left is None else look_up(self.left, left, arch)
        right = right if self.right is None else look_up(self.right, right, arch)
        result = self.compute(left, right, arch)
        return result if self.last is None else look_up(self.last, result, arch)


def product_of(call: HardwareCall) -> Any:
    """Multiply: bfloat16 on the vector unit, block floats on the matrix unit in four passes."""
    blocks = not BLOCK_BITS.keys().isdisjoint(call.facts.dtypes)
    return binary(call, matrix_unit_product if blocks else product)


def quotient_of(call: HardwareCall) -> Any:
    """Divide on the vector unit; with a rounding mode or in fast mode it is left to torch."""
    return None if call.has("rounding_mode", FAST) else binary(call, quotient)


def of_tensors(call: HardwareCall, compute: Callable[[Any, Any, str], Any]) -> Any:
    """Compute an op of two tensors; with a number it is another kernel."""
    pair = call.take("input_tensor_a", "input_tensor_b")
    return binary(call, compute) if all(isinstance(it, torch.Tensor) for it in pair) else None


def power_of(call: HardwareCall) -> Any:
    """Raise to a power: a number, or a tensor of them."""
    base, exponent = call.take("input_tensor_a", "input_tensor_b")
    if isinstance(base, torch.Tensor) and isinstance(exponent, (int, float)):
        return pack(look_up("pow", base, call.facts.arch, float(exponent)), call.output)
    return of_tensors(call, tensor_power)


def gated(call: HardwareCall, name: str) -> Any:
    """Multiply the left half of the last dimension by a function of the right half."""
    values, dim = call.take("input_tensor", "dim")
    if dim not in (None, -1, values.dim() - 1) or values.shape[-1] % (2 * TILE):
        return None
    left, right = values.chunk(2, -1)
    gate = look_up(name, right, call.facts.arch)
    return pack(product(left.contiguous(), gate, call.facts.arch), call.output)


@dataclass(frozen=True, slots=True)
class Compute:
    """A compute configuration with its defaults filled in."""

    fidelity: str
    wide: bool
    in_l1: bool
    approximate: bool

    @classmethod
    def of(
        cls,
        call: HardwareCall,
        fidelity: str,
        *,
        wide: bool = False,
        in_l1: bool = True,
        approximate: bool = False,
    ) -> Compute:
        """Return the configuration of a call, or the defaults of its op."""
        given = call.facts.configuration
        if given is None:
            return cls(fidelity, wide, in_l1, approximate)
        return cls(
            given.math_fidelity.name,
            bool(given.fp32_dest_acc_en),
            bool(given.packer_l1_acc),
            bool(given.math_approx_mode),
        )


FAST: Final = "fast_and_approximate_mode"


# The second argument of a function of one value: its name, and its default.
PARAMETERS: Final[Mapping[str, tuple[str, float | None]]] = {
    "leaky_relu": ("negative_slope", 0.01),
    "polygamma": ("k", None),
    "prelu": ("weight", None),
}


def function_of(call: HardwareCall, name: str) -> Any:
    """Look a function of one value up; those with other arguments are left to torch."""
    parameter, default = PARAMETERS.get(name, (None, None))
    asked = ("input_tensor",) if parameter is None else ("input_tensor", parameter)
    values, *numbers = call.take(*asked)
    known = {*asked, FAST, "memory_config", "output_tensor", "sub_core_grids", "dtype"}
    given = {key for key, value in call.keywords.items() if value is not None}
    others = {key for key in given - known if not key.startswith("_")}
    numbers = [default if number is None else number for number in numbers]
    if not all(isinstance(number, (int, float)) for number in numbers):
        return None
    if values is None or len(call.arguments) > len(asked) or others:
        return None
    if call.has(FAST):
        name = f"{name}_fast"
        if name not in CUT:
            return None
    return pack(look_up(name, values, call.facts.arch, *map(float, numbers)), call.output)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of several steps: what it writes to L1 in between, and how it reads that."""

    compute: Compute

    @property
    def core(self) -> MatrixUnit:
        """Return the matrix unit as this kernel uses it."""
        return MatrixUnit(self.phases, self.compute.wide)

    @property
    def phases(self) -> int:
        """Return the passes of its products."""
        return PHASES[self.compute.fidelity]

    def kept(self, values: Any) -> Any:
        """Return values as the next step reads them."""
        return unit.nineteen_bits(values) if self.compute.wide else unit.half_away(values)

    def function(self, name: str, values: Any) -> Any:
        """Return a function of values in the destination register, as the next step reads it."""
        if not self.compute.wide:
            return look_up(f"{name}_fast" if self.compute.approximate else name, values)
        plain = FAST_FUNCTIONS[name] if self.compute.approximate else PLAIN_FUNCTIONS[name]
        return unit.nineteen_bits(plain(values))

    def mean(self, values: Any, part: int) -> Any:
        """Return the means of rows: those of each core's columns, then of these on one core."""
        width = values.shape[-1]
        if part >= width:
            return self._mean(values)
        means = [self._mean(columns) for columns in values.split(part, dim=-1)]
        # Each mean is the first column of a tile.
        tiles = [torch.nn.functional.pad(each, (0, TILE - 1)) for each in means]
        return self._mean(torch.cat(tiles, dim=-1), len(means))

    def _mean(self, values: Any, count: int | None = None) -> Any:
        share = unit.truncated(torch.tensor([1 / (count or values.shape[-1])]))
        return self.kept(self.core.sum_rows(values, float(share)))

    def add(self, left: Any, right: Any) -> Any:
        """Return a sum in the destination register."""
        return unit.add(left, right, wide=self.compute.wide)

    def multiply(self, left: Any, right: Any) -> Any:
        """Return a product in the destination register."""
        return unit.multiply(left, right, self.phases, wide=self.compute.wide)


PLAIN_FUNCTIONS: Final = {
    "exp": exact(torch.exp),
    "rsqrt": exact(torch.rsqrt),
    "reciprocal": exact(torch.reciprocal),
}
FAST_FUNCTIONS: Final = {
    "exp": exp_fast,
    "rsqrt": rsqrt_fast,
    "reciprocal": reciprocal_fast,
}


def softmax(call: HardwareCall) -> Any:
    """Return the softmax of rows, less their largest values."""
    values, dim = call.take("input_tensor", "dim")
    if dim not in (None, -1, values.dim() - 1) or call.output != "BFLOAT16":
        return None
    given = call.facts.configuration
    kernel = Kernel(Compute.of(call, "HiFi4", approximate=given is None))
    largest = values.amax(-1, keepdim=True)
    exponentials = kernel.function("exp", kernel.add(values, -largest))
    sums = kernel.core.sum_rows(exponentials)
    return unit.half_away(kernel.multiply(exponentials, kernel.function("reciprocal", sums)))


def norm(call: HardwareCall, *, centers: bool) -> Any:
    """Return rows divided by their deviation, or by their root mean square."""
    (values,) = call.take("input_tensor")
    weight, bias = call.keywords.get("weight"), call.keywords.get("bias")
    width = values.shape[-1]
    vectors = [each for each in (weight, bias) if each is not None]
    unknown = call.has("residual_input_tensor", "recip_tensor")
    unknown = unknown or getattr(call.facts.program, "use_welford", False)
    if unknown or call.output != "BFLOAT16" or any(each.numel() != width for each in vectors):
        return None
    given = call.facts.configuration
    compute = Compute.of(call, "HiFi4", wide=centers, approximate=given is None and not centers)
    kernel = Kernel(compute)
    part = call.facts.shard_width or width
    if centers:
        values = kernel.kept(kernel.add(values, -kernel.mean(values, part)))
    squares = kernel.kept(kernel.multiply(values, values))
    variance = kernel.mean(squares, part)
    small = unit.truncated(torch.tensor([float(call.keywords.get("epsilon") or 1e-12)]))
    factor = kernel.function("rsqrt", kernel.add(variance, small))
    result = kernel.multiply(values, factor)
    if weight is not None:
        result = kernel.multiply(kernel.kept(result), weight.reshape(-1))
    if bias is not None:
        result = kernel.add(kernel.kept(result), bias.reshape(-1))
    return unit.half_away(result)


def reduction(call: HardwareCall, *, averages: bool) -> Any:
    """Sum or average one of the last two dimensions, in float32."""
    values, dim, keeps = call.take("input_tensor", "dim", "keepdim")
    if isinstance(dim, (list, tuple)):
        dim = dim[0] if len(dim) == 1 else None
    if dim is None or call.has("scalar") or values.dim() < 2:  # noqa: PLR2004 - matrices
        return None
    dim = dim - values.dim() if dim >= 0 else dim
    if dim not in (-1, -2):
        return None
    core = MatrixUnit(PHASES["HiFi4"], wide=True)
    share = 1 / values.shape[dim] if averages else float(call.keywords.get("scalar") or 1.0)
    share = float(unit.truncated(torch.tensor([share])))
    total = core.sum_rows(values, share) if dim == -1 else core.sum_columns(values, share)
    total = unit.half_away(total)
    return pack(total if keeps else total.squeeze(dim), call.output)


def matrix_product(call: HardwareCall) -> Any:
    """Multiply matrices; a bias is added on the matrix unit, an activation comes last."""
    left, right = call.take("input_tensor_a", "input_tensor_b")
    if call.has("transpose_a"):
        left = left.transpose(-2, -1)
    if call.has("transpose_b"):
        right = right.transpose(-2, -1)
    bias, activation = call.keywords.get("bias"), _activation(call)
    if left.dim() < 2 or right.dim() < 2 or activation not in FUSED:  # noqa: PLR2004 - matrices
        return None
    if bias is not None and bias.numel() != bias.shape[-1]:
        return None
    compute = Compute.of(call, _default_fidelity(call.facts))
    core = MatrixUnit(PHASES[compute.fidelity], compute.wide, compute.in_l1)
    block = TILE * _block_tiles(call.facts, left.shape, right.shape)
    spill = partial(pack, dtype=call.output) if call.output in BLOCK_BITS else None
    product = core.matmul(left, right, block, keeps_last=bias is not None, spill=spill)
    if bias is not None:
        read = unit.nineteen_bits if compute.wide else unit.half_away
        product = unit.add(read(product), bias.reshape(-1), wide=compute.wide)
    return pack(activated(call, compute, product, activation), call.output)


def activated(call: HardwareCall, compute: Compute, product: Any, activation: Any) -> Any:
    """Return a product after its activation, as bfloat16: what the packer reads."""
    if activation and not compute.wide:
        return look_up(activation, unit.half_away(product), call.facts.arch)
    if activation:
        return unit.half_away(evaluate(activation, product, call.facts.arch))
    # The packer reads a float32 destination for block floats without rounding it first.
    cuts = compute.wide and call.output in BLOCK_BITS
    return (unit.truncated if cuts else unit.half_away)(product)


FUSED: Final = (None, "", "relu", "gelu", "gelu_fast", "silu")


def _activation(call: HardwareCall) -> Any:
    """Return the name of the activation that follows a product, also that of its program."""
    fused = getattr(call.facts.program, "fused_activation", None)
    return call.keywords.get("activation") if fused is None else activation_name(fused)


def activation_name(fused: Any) -> Any:
    """Return the name of an activation by which its function is found."""
    if fused is None or isinstance(fused, str):
        return fused
    name = fused.op_type.name.lower()
    return f"{name}_fast" if any(activation_parameters(fused)) else name


def _default_fidelity(facts: CallFacts) -> str:
    blocks = facts.dtypes[0] in BLOCK_BITS and facts.dtypes[1] in BLOCK_BITS
    return "LoFi" if blocks or facts.program is not None or facts.has_grid else "HiFi2"


def _block_tiles(facts: CallFacts, left: Any, right: Any) -> int:
    """Return how many tiles of the inner dimension a core multiplies at a time."""
    given = getattr(facts.program, "in0_block_w", None)
    if given is not None:
        return int(given)
    inner, height, width = (-(-size // TILE) for size in (left[-1], left[-2], right[-1]))
    if torch.Size(right[:-2]).numel() > 1:
        return int(inner)
    ratio = max(height // width, width // height)
    line = ratio > NARROW_RATIO or (facts.in_dram and min(height, width) == 1)
    if line or not facts.in_dram:
        return 1 if inner % 2 else 2
    return int(inner // facts.columns) if inner % facts.columns == 0 else 1


BINARY: Final[Mapping[str, Callable[[Any, Any, str], Any]]] = {
    "add": sum_of,
    "subtract": difference,
    "rsub": reversed_difference,
    "squared_difference": Combined(difference, last="square"),
    "hypot": Combined(sum_of, "square", "square", "sqrt"),
    "ldexp": Combined(matrix_unit_product, right="exp2"),
    "logaddexp": Combined(sum_of, "exp", "exp", "log"),
    "logaddexp2": Combined(sum_of, "exp2", "exp2", "log2"),
}
OF_TENSORS: Final = {"maximum": larger, "minimum": smaller, "xlogy": xlogy, "atan2": atan2}
GATES: Final = {"glu": "sigmoid", "reglu": "relu", "geglu": "gelu_fast", "swiglu": "silu"}

ELEMENTWISE: Final[Mapping[str, HardwareFunction]] = {
    "ttnn.typecast": typecast,
    **{
        f"ttnn.{name}{place}": partial(binary, compute=compute)
        for name, compute in BINARY.items()
        for place in ("", "_")
    },
    **{f"ttnn.{name}": partial(of_tensors, compute=it) for name, it in OF_TENSORS.items()},
    **{f"ttnn.{name}": partial(gated, name=gate) for name, gate in GATES.items()},
    "ttnn.multiply": product_of,
    "ttnn.multiply_": product_of,
    "ttnn.divide": quotient_of,
    "ttnn.divide_": quotient_of,
    "ttnn.div": quotient_of,
    "ttnn.pow": power_of,
    **{f"ttnn.{name}": partial(function_of, name=name) for name in MODELED - {"pow"}},
}

FUNCTIONS: Final[Mapping[str, HardwareFunction]] = {
    **ELEMENTWISE,
    "ttnn.softmax": softmax,
    "ttnn.softmax_in_place": softmax,
    "ttnn.layer_norm": partial(norm, centers=True),
    "ttnn.rms_norm": partial(norm, centers=False),
    "ttnn.sum": partial(reduction, averages=False),
    "ttnn.mean": partial(reduction, averages=True),
    "ttnn.matmul": matrix_product,
    "ttnn.linear": matrix_product,
}
