"""Wrong kernels of torch, and what a replay says of each: ``python planted_faults.py``.

Each fault takes the place of one of torch's own kernels on the CPU, one after the other. The cases
are calls in float32 and bfloat16. The output is JSON: for each fault, the first line of what was
found in each case, None for nothing.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import warnings

import torch
from torch.nn import functional

FAULTS = {}


def fault(op, words):
    """Register a wrong kernel under the name of the operation that it replaces."""

    def register(kernel):
        FAULTS[f"{op}: {words}"] = (op, kernel)
        return kernel

    return register


def plant(op, words, kernel):
    """Register a wrong kernel that is one expression."""
    fault(op, words)(kernel)


def wide(x):
    """Return float64 numbers, which no replaced kernel of another dtype has touched."""
    return x.double()


def like(x, numbers):
    return numbers.to(x.dtype)


# Elementwise functions, with kernels that use other operations.
plant("relu", "drops NaN", lambda x: x.clamp_min(0).nan_to_num(0.0, math.inf, 0.0))
plant(
    "relu",
    "the last 7 elements are not touched",
    lambda x: torch.cat([x.flatten()[:-7].clamp_min(0), x.flatten()[-7:]]).view_as(x),
)
plant("relu", "the last 7 elements are never written", lambda x: unwritten_tail(x, 7))
plant("relu", "leaks a thousandth", lambda x: torch.where(x < 0, x / 1000, x))
plant("relu", "negates zero results", lambda x: torch.where(x > 0, x, x.abs() * 1e-3))
plant("abs", "zero", torch.zeros_like)
plant(
    "abs",
    "an infinity becomes the largest number",
    lambda x: like(x, wide(x).square().sqrt().clamp(max=torch.finfo(x.dtype).max)),
)
plant("neg", "NaN becomes zero", lambda x: (0 - x).nan_to_num(0.0, math.inf, -math.inf))
plant("exp", "clipped at 10", lambda x: like(x, math.e ** wide(x).clamp(max=10)))
plant("exp", "zero below 1", lambda x: like(x, torch.where(wide(x) < 0, 0.0, math.e ** wide(x))))
plant("exp", "returns 7", lambda x: torch.full_like(x, 7))
plant(
    "exp",
    "a Taylor series of 8 terms",
    lambda x: like(x, sum(wide(x) ** n / math.factorial(n) for n in range(9))),
)
plant("log", "of the absolute value", lambda x: like(x, wide(x).abs().log2() * math.log(2)))
plant(
    "log",
    "of zero is finite",
    lambda x: like(x, wide(x).clamp(min=1e-30).log2() * math.log(2)) + 0 * x.sqrt(),
)
plant("log1p", "cancels", lambda x: torch.log(1 + x))
plant("expm1", "cancels", lambda x: torch.exp(x) - 1)
plant("sqrt", "of a negative number is zero", lambda x: like(x, wide(x).clamp(min=0) ** 0.5))
plant("rsqrt", "10 % off", lambda x: like(x, 1.1 * wide(x) ** -0.5))
plant("rsqrt", "1 % off", lambda x: like(x, 1.01 * wide(x) ** -0.5))
plant(
    "rsqrt",
    "zero gives a large number",
    lambda x: like(x, wide(x).clamp(min=1e-20) ** -0.5) + 0 * x.sqrt(),
)
plant(
    "reciprocal",
    "zero above 0.5",
    lambda x: torch.where(x.abs() > 0.5, torch.zeros_like(x), torch.ones_like(x).div(x)),
)
plant(
    "reciprocal",
    "of zero is zero",
    lambda x: torch.where(x == 0, torch.zeros_like(x), torch.ones_like(x).div(x)),
)
plant("sigmoid", "saturates at 6", lambda x: like(x, 1 / (1 + math.e ** (-wide(x).clamp(-6, 6)))))
plant(
    "tanh",
    "a rational approximation",
    lambda x: like(x, wide(x) * (27 + wide(x) ** 2) / (27 + 9 * wide(x) ** 2)).clamp(-1, 1),
)
plant(
    "erf",
    "a poor approximation",
    lambda x: like(x, (1.128 * wide(x) / (1 + 0.1 * wide(x) ** 2)).clamp(-1, 1)),
)
plant(
    "gelu",
    "by tanh where erf is asked for",
    lambda x, *, approximate="none": like(
        x, 0.5 * wide(x) * (1 + (0.7978845608 * (wide(x) + 0.044715 * wide(x) ** 3)).tanh())
    ),
)
plant(
    "sin",
    "without range reduction",
    lambda x: like(x, wide(x) - wide(x) ** 3 / 6 + wide(x) ** 5 / 120),
)
plant(
    "round",
    "halves away from zero",
    lambda x: torch.where(x >= 0, (x + 0.5).floor(), (x - 0.5).ceil()),
)
plant("floor", "truncates", lambda x: x.trunc())
plant("trunc", "floors", lambda x: x.floor())
plant("ceil", "adds one to whole numbers", lambda x: x.floor() + 1)
plant(
    "sign",
    "of zero is one",
    lambda x: torch.where(x >= 0, 1.0, -1.0).to(x.dtype) + 0 * x.nan_to_num(0.0, 0.0, 0.0),
)
plant("isnan", "always False", lambda x: torch.zeros_like(x, dtype=torch.bool))
plant("isinf", "sees the positive one only", lambda x: x == math.inf)
plant("nan_to_num", "keeps NaN", lambda x, nan=None, posinf=None, neginf=None: x.clone())

# Two arguments.
plant("add.Tensor", "ignores alpha", lambda x, y, *, alpha=1: x - (-y))
plant("sub.Tensor", "zero", lambda x, y, *, alpha=1: torch.zeros_like(x))
plant(
    "sub.Tensor",
    "of one tensor from itself is 1e-3",
    lambda x, y, *, alpha=1: (
        x.add(y, alpha=-alpha) + (1e-3 if x is y or x.data_ptr() == y.data_ptr() else 0)
    ),
)
plant("mul.Tensor", "2 % too large", lambda x, y: times(x, y, 1.02))
plant(
    "div.Tensor",
    "by zero is zero",
    lambda x, y: torch.where(y == 0, torch.zeros_like(x), x * y.reciprocal()),
)
plant(
    "div.Tensor_mode",
    "truncates instead of floor",
    lambda x, y, *, rounding_mode: (x / y).trunc().to(x.dtype),
)
plant("maximum", "drops NaN", lambda x, y: torch.where(x > y, x, torch.where(y.isnan(), x, y)))
plant("minimum", "drops NaN", torch.fmin)
plant("ge.Tensor", "greater", lambda x, y: x > y)
plant("gt.Tensor", "or equal", lambda x, y: x >= y)
plant("eq.Tensor", "NaN equals NaN", lambda x, y: ~(x != y) | (x.isnan() & y.isnan()))
plant("remainder.Tensor", "with the sign of the dividend", lambda x, y: x.fmod(y))
plant(
    "floor_divide", "truncates whole numbers", lambda x, y: torch.div(x, y, rounding_mode="trunc")
)
plant("where.self", "the wrong way round", lambda c, x, y: y * c + x * ~c)
plant(
    "clamp",
    "drops NaN",
    lambda x, min=None, max=None: (  # noqa: A006 - the names of the schema
        x.nan_to_num(0.0, math.inf, -math.inf).clamp_min(min).clamp_max(max)
    ),
)

# In place.
plant("add_.Tensor", "returns a copy", lambda x, y, *, alpha=1: x.add(y, alpha=alpha))
plant("relu_", "changes nothing", lambda x: x)
plant("mul_.Tensor", "also changes the other one", lambda x, y: spoiling(x, y, 0))

# Sums.
plant("mm", "5 % too large", lambda x, y: matmul(x, y) * 1.05)
plant("mm", "2 % too large", lambda x, y: matmul(x, y) * 1.02)
plant("mm", "the last term of each sum is missing", lambda x, y: matmul(x[:, :-1], y[:-1]))
plant("mm", "one row is wrong", lambda x, y: one_row(matmul(x, y)))
plant("mm", "the strides are swapped", lambda x, y: matmul(x, y).t().contiguous().t())
plant("mm", "an offset of 0.05", lambda x, y: matmul(x, y) + 0.05)
plant(
    "bmm",
    "the first batch for all",
    lambda x, y: like(x, (wide(x[:1]).unsqueeze(-1) * wide(y).unsqueeze(-3)).sum(-2)),
)
plant("addmm", "without the bias", lambda b, x, y, *, beta=1, alpha=1: matmul(x, y) * alpha)
plant(
    "sum.dim_IntList",
    "the last element is missing",
    lambda x, dim, keepdim=False, *, dtype=None: x[..., :-1].cumsum(-1)[..., -1].clone(),
)
plant(
    "sum.dim_IntList",
    "adds in bfloat16",
    lambda x, dim, keepdim=False, *, dtype=None: narrow_sum(x),
)
plant(
    "mean.dim",
    "divides by one less",
    lambda x, dim, keepdim=False, *, dtype=None: like(
        x, wide(x).sum(dim, keepdim) / (x.shape[-1] - 1)
    ),
)
plant(
    "cumsum",
    "begins with zero",
    lambda x, dim, *, dtype=None: like(
        x, torch.stack([wide(x)[:, :n].sum(-1) for n in range(x.shape[1])], 1)
    ),
)
plant(
    "amax",
    "drops NaN",
    lambda x, dim=(), keepdim=False: (
        x.nan_to_num(-math.inf, math.inf, -math.inf).max(dim[0], keepdim).values
    ),
)
plant(
    "argmax",
    "the last of equals",
    lambda x, dim=None, keepdim=False: x.shape[dim] - 1 - x.flip(dim).max(dim).indices,
)
plant(
    "_softmax",
    "without its maximum",
    lambda x, dim, half: torch.exp(x) / torch.exp(x).sum(dim, True),
)
plant(
    "_softmax",
    "over the wrong dimension",
    lambda x, dim, half: like(x, wide(x).exp() / wide(x).exp().sum(0, True)),
)
plant(
    "_log_softmax",
    "as the logarithm of a sum that overflows",
    lambda x, dim, half: x - torch.exp(x).sum(dim, True).log(),
)
plant(
    "native_layer_norm",
    "eps a hundred times too large",
    lambda x, shape, w, b, eps: layer_norm(x, w, b, 100 * eps + 1e-3),
)
plant(
    "native_layer_norm",
    "the variance of a sample",
    lambda x, shape, w, b, eps: layer_norm(x, w, b, eps, correction=1),
)
plant(
    "var.correction",
    "of the population",
    lambda x, dim=None, *, correction=None, keepdim=False: like(
        x, (wide(x) - wide(x).mean(dim, True)).square().mean(dim, keepdim)
    ),
)

# Order and places.
plant(
    "sort.stable",
    "unstable if descending",
    lambda x, *, stable=None, dim=-1, descending=False: unstable(x, dim, descending),
)
plant(
    "topk",
    "the smallest",
    lambda x, k, dim=-1, largest=True, sorted=True: tuple(  # noqa: A006 - likewise
        part[..., :k].contiguous() for part in x.sort(dim)
    ),
)
plant("index_select", "one place further", lambda x, dim, index: x[(index + 1) % x.shape[0]])
plant("embedding", "the first row for row 1", lambda w, i, *_: w[torch.where(i == 1, 0, i)])
plant("cat", "the first part twice", lambda parts, dim=0: joined(parts, dim))
plant("_cdist_forward", "the fast formula", lambda x, y, p, mode: fast_distance(x, y))
plant("any.dim", "sees the first five only", lambda x, dim, keepdim=False: x[..., :5].amax(dim))
plant("index_add", "once for equal indices", lambda x, dim, i, other: added_once(x, i, other))
plant(
    "nll_loss_forward",
    "counts what is to be ignored",
    lambda x, target, weight, reduction, ignored: (
        like(x, -wide(x)[torch.arange(len(target)), target.clamp(min=0)].mean()),
        torch.tensor(float(len(target)), dtype=x.dtype),
    ),
)
plant("masked_fill.Scalar", "fills the others", lambda x, mask, value: x * mask + value * ~mask)
plant(
    "max_pool2d_with_indices",
    "the mean",
    lambda x, *a: (functional.avg_pool2d(x, 2), functional_indices(x)),
)


def times(x, y, factor):
    reciprocal = torch.as_tensor(y).double().reciprocal().div(factor)
    return like(x, wide(x) / reciprocal)


def unwritten_tail(x, count):
    result = torch.empty_like(x)
    result.view(-1)[:-count] = x.flatten()[:-count].clamp_min(0)
    return result


def matmul(x, y):
    return like(x, torch.einsum("...ij,...jk->...ik", wide(x), wide(y)))


def one_row(result):
    result[-1] = result[0]
    return result


def spoiling(x, y, number):
    result = x.copy_(x * wide(y))
    y.view(-1)[-1] = number
    return result


def narrow_sum(x):
    total = torch.zeros(x.shape[:-1], dtype=torch.bfloat16)
    for n in range(x.shape[-1]):
        total = (total.double() + x[..., n].double()).bfloat16()
    return total.to(x.dtype)


def layer_norm(x, weight, bias, eps, correction=0):
    mean = wide(x).mean(-1, True)
    off = wide(x) - mean
    scale = ((off * off).sum(-1, True) / (x.shape[-1] - correction) + eps) ** -0.5
    return like(x, off * scale * wide(weight) + wide(bias)), like(x, mean), like(x, scale)


def added_once(x, index, other):
    result = x.clone()
    result[index] = like(x, wide(x)[index] + wide(other))
    return result


def unstable(x, dim, descending):
    values, order = (-x if descending else x).flip(dim).topk(x.shape[dim], dim, largest=False)
    # Neighbors that are equal change places.
    order = x.shape[dim] - 1 - order
    values = x.gather(dim, order)
    for n in range(0, x.shape[dim] - 1, 2):
        swap = (values[..., n] == values[..., n + 1]) & (order[..., n] < order[..., n + 1])
        one, other = order[..., n].clone(), order[..., n + 1].clone()
        order[..., n], order[..., n + 1] = (
            torch.where(swap, other, one),
            torch.where(swap, one, other),
        )
    return values, order


def joined(parts, dim):
    result = torch.empty(sum(p.shape[0] for p in parts), *parts[0].shape[1:], dtype=parts[0].dtype)
    for n, part in enumerate(parts):
        result[n * part.shape[0] : (n + 1) * part.shape[0]] = parts[0]
    return result


def fast_distance(x, y):
    squares = x.square().sum(-1, True) + y.square().sum(-1).unsqueeze(-2)
    return (squares - 2 * (x @ y.transpose(-1, -2))).clamp(min=0) ** 0.5


def functional_indices(x):
    return torch.zeros(*x.shape[:-2], x.shape[-2] // 2, x.shape[-1] // 2, dtype=torch.long)


UNARY = [
    "relu",
    "abs",
    "neg",
    "exp",
    "log",
    "log1p",
    "expm1",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "sigmoid",
    "tanh",
    "erf",
    "sin",
    "round",
    "floor",
    "trunc",
    "ceil",
    "sign",
    "isnan",
    "isinf",
    "nan_to_num",
]


def program(dtype):
    """Call each operation as models do."""
    x, y = torch.randn(12, 40).to(dtype), torch.randn(12, 40).to(dtype)
    mask = torch.rand(12, 40) > 0.5
    for name in UNARY:
        getattr(torch, name)(x)
    for name in ("sub", "mul", "div", "maximum", "minimum", "ge", "gt", "eq", "remainder"):
        getattr(torch, name)(x, y)
    functional.gelu(x), torch.add(x, y, alpha=2), torch.div(x, y, rounding_mode="floor")
    whole = torch.randint(1, 9, (12, 40))
    torch.div(whole, whole + 1, rounding_mode="floor"), torch.floor_divide(whole, whole + 1)
    torch.where(mask, x, y), torch.clamp(x, -1, 1), x.masked_fill(mask, 0.5)
    x.clone().add_(y), x.clone().relu_(), x.clone().mul_(y)
    x @ y.T, torch.bmm(x.view(3, 4, 40), y.view(3, 40, 4))
    torch.addmm(x[:, :12], x, y.T), x.sum(-1), x.mean(-1), x.cumsum(-1), x.amax(-1)
    x.argmax(-1), x.softmax(-1), x.log_softmax(-1), x.var(-1)
    functional.layer_norm(x, (40,), y[0], y[1])
    x.sort(dim=-1, descending=True, stable=True), x.topk(5)
    x.index_select(0, torch.arange(11)), functional.embedding(torch.arange(24).view(2, 12) % 12, x)
    (x > 1).any(-1), x.index_add(0, torch.tensor([0, 0, 3]), y[:3])
    functional.nll_loss(x, torch.arange(12))
    torch.cat([x, y]), torch.cdist(x.float(), y.float())
    functional.max_pool2d(x.view(2, 3, 8, 10).clone().requires_grad_(), 2)


def cases():
    """Return the recorded Jobs of the program, by operation."""
    from optrove.model.records import DeviceKind, Job
    from recorded_program import jobs_in
    from tracing import tracing

    jobs = {}
    with tempfile.TemporaryDirectory() as directory:
        from pathlib import Path

        with tracing(Path(directory), backend="torch") as traced:
            program(torch.float32)
            program(torch.bfloat16)
            found = jobs_in(traced.directory)
    for job in found:
        name = job.case.op.removeprefix("torch.ops.aten.").removesuffix(".default")
        jobs.setdefault(name, []).append(Job(job.case, DeviceKind.HOST, outputs=job.outputs))
    return jobs


def said(executor, jobs):
    """Return the first line of what is wrong with each case; None for nothing."""
    from optrove.replay.judge import measure, output_differences

    lines = []
    for job in jobs:
        executed = executor.execute(job, lambda _: None)
        if executed.raised is not None:
            lines.append(f"{executed.raised.type}: {executed.raised.text}".splitlines()[0])
            continue
        wrong = output_differences(job.outputs or (), executed.outputs)
        faults = [*wrong, *measure(executed.compared, ("pcc",))[1], *executed.faults]
        lines.append(faults[0] if faults else None)
    return lines


def main():
    from optrove.frameworks.torch.execute import TorchExecutor
    from optrove.model.torch_target import TorchTarget
    from optrove.replay.worker import LoadedTables

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    jobs = cases()
    # Any module: what matters is that the court is made before the kernels are replaced.
    executor = TorchExecutor(torch, LoadedTables(), TorchTarget(imports=("colorsys",)))
    chosen = sys.argv[1:]
    verdicts = {
        f"{op}: unchanged": (said(executor, jobs[op]) if not chosen else None)
        for op in sorted({op for op, _ in FAULTS.values()})
    }
    for words, (op, kernel) in FAULTS.items():
        if chosen and not any(part in words for part in chosen):
            continue
        library = torch.library.Library("aten", "IMPL")
        library.impl(op, kernel, "CPU")
        try:
            verdicts[words] = said(executor, jobs[op])
        finally:
            library._destroy()
    executor.close()
    sys.stdout.write(json.dumps(verdicts))


if __name__ == "__main__":
    main()
