"""Wrong kernels of ttnn, and what a replay says of each: ``planted_device_faults.py NUMERICS``.

Each case is a call that is recorded on a mock board and replayed there, once for each fault, with
numbers of the shadow that the fault has changed. With ideal numerics it is a replay on the shadow.
With hardware numerics the shadow stands in for a board, whose kernels compute as its models do;
with "held", their release is one that hardware numerics were compared with.
The output is JSON: for each fault the cause that the replay names, or the note that a kernel
computes otherwise; None for neither.
Faults called "unchanged" are right kernels.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from pathlib import Path

import optrove

NUMERICS = sys.argv[1] if len(sys.argv) > 1 else "ideal"
CASES = {}
FAULTS = {}


def case(make):
    """Register a case: a function of ttnn and of a function that makes tensors of a shape."""
    CASES[make.__name__] = make
    return make


def plant(of, words, kernel):
    """Register a fault: a function of the right result and of the inputs of a case."""
    FAULTS[f"{of}: {words}"] = (of, kernel)


def compute(ttnn, fidelity, *, wide=False):
    return ttnn.WormholeComputeKernelConfig(
        math_fidelity=getattr(ttnn.MathFidelity, fidelity),
        math_approx_mode=False,
        fp32_dest_acc_en=wide,
        packer_l1_acc=False,
    )


@case
def matmul(ttnn, make):
    return ttnn.matmul(make(128, 512), make(512, 128), compute_kernel_config=compute(ttnn, "HiFi4"))


@case
def wide_matmul(ttnn, make):
    return ttnn.matmul(
        make(128, 2048), make(2048, 128), compute_kernel_config=compute(ttnn, "HiFi4", wide=True)
    )


@case
def lofi_matmul(ttnn, make):
    return ttnn.matmul(make(128, 512), make(512, 128), compute_kernel_config=compute(ttnn, "LoFi"))


@case
def large_matmul(ttnn, make):
    return ttnn.matmul(make(1024, 64), make(64, 1024))


@case
def packed_matmul(ttnn, make):
    return ttnn.matmul(make(64, 256), make(256, 96, dtype=ttnn.bfloat8_b), dtype=ttnn.bfloat8_b)


@case
def linear(ttnn, make):
    return ttnn.linear(make(64, 256), make(256, 96), bias=make(1, 96))


@case
def softmax(ttnn, make):
    return ttnn.softmax(make(64, 128), dim=-1)


@case
def padded_softmax(ttnn, make):
    return ttnn.softmax(make(64, 50), dim=-1)


@case
def masked_softmax(ttnn, make):
    return ttnn.scale_mask_softmax(make(1, 2, 32, 64), 0.125, make(1, 1, 32, 64))


@case
def layer_norm(ttnn, make):
    return ttnn.layer_norm(make(64, 64), weight=make(1, 64), bias=make(1, 64))


@case
def rms_norm(ttnn, make):
    return ttnn.rms_norm(make(64, 128), weight=make(1, 128))


@case
def add(ttnn, make):
    return ttnn.add(make(96, 160), make(96, 160))


@case
def add_row(ttnn, make):
    return ttnn.add(make(96, 160), make(1, 160))


@case
def add_shards(ttnn, make):
    memory = ttnn.create_sharded_memory_config(
        (128, 64), core_grid=ttnn.CoreGrid(y=1, x=4), strategy=ttnn.ShardStrategy.HEIGHT
    )
    return ttnn.add(make(128, 64, memory=memory), make(128, 64, memory=memory))


@case
def overflow(ttnn, make):
    return ttnn.multiply(make(64, 64), 3e38)


@case
def tiny(ttnn, make):
    return ttnn.multiply(make(64, 64), 1e-36)


@case
def exp(ttnn, make):
    return ttnn.exp(make(64, 96))


@case
def silu(ttnn, make):
    return ttnn.silu(make(64, 96))


@case
def relu(ttnn, make):
    return ttnn.relu(make(64, 96))


@case
def reciprocal(ttnn, make):
    return ttnn.reciprocal(make(64, 96))


@case
def total(ttnn, make):
    return ttnn.sum(make(64, 50), dim=-1)


@case
def long_total(ttnn, make):
    return ttnn.sum(make(64, 4096), dim=-1)


@case
def mean(ttnn, make):
    return ttnn.mean(make(64, 50), dim=-1)


@case
def largest(ttnn, make):
    return ttnn.max(make(64, 50), dim=-1)


@case
def argmax(ttnn, make):
    return ttnn.argmax(ttnn.to_layout(make(64, 128), ttnn.ROW_MAJOR_LAYOUT), dim=-1)


@case
def transpose(ttnn, make):
    return ttnn.transpose(make(64, 96), -2, -1)


@case
def concat(ttnn, make):
    return ttnn.concat([make(32, 64), make(32, 64)], dim=0)


@case
def heads(ttnn, make):
    return ttnn.experimental.nlp_concat_heads(make(1, 4, 32, 64))


@case
def narrowed(ttnn, make):
    return ttnn.typecast(make(64, 128), ttnn.bfloat8_b)


@case
def rows(ttnn, make):
    return ttnn.multiply(make(50, 70), make(50, 70))


def changed(index, value):
    """Return a kernel that computes something else in some elements."""

    def kernel(result, *inputs):
        result = result.clone()
        result[index] = value(result, *inputs)[index] if callable(value) else value
        return result

    return kernel


def swapped(first, second):
    """Return a kernel that exchanges two parts of its result."""

    def kernel(result, *_):
        found = result.clone()
        found[first], found[second] = result[second], result[first]
        return found

    return kernel


def rolled(dim):
    return lambda result, *_: result.roll(1, dim)


def in_unit(phases, *, wide):
    """Return a kernel that multiplies matrices with another fidelity or accumulation."""

    def kernel(_, left, right):
        from optrove.frameworks.ttnn.shadow.arithmetic import MatrixUnit

        return MatrixUnit(phases, wide).matmul(left, right, 64)

    return kernel


def scaled(factor):
    return lambda result, *_: result * factor


TILE = (slice(32, 64), slice(32, 64))
LAST = (Ellipsis, slice(-32, None), slice(-32, None))

plant("matmul", "times 1.05", scaled(1.05))
plant("matmul", "times 1.02", scaled(1.02))
plant("matmul", "plus a constant", lambda result, *_: result + 0.5)
plant("matmul", "one element is zero", changed((0, 1), 0.0))
plant("matmul", "the last tile is zero", changed(LAST, 0.0))
plant("matmul", "the last tile is never written", changed(LAST, 1e4))
plant("matmul", "one tile is zero", changed(TILE, 0.0))
plant("matmul", "one tile is transposed", changed(TILE, lambda x, *_: x.mT))
plant(
    "matmul",
    "two faces of a tile are swapped",
    swapped((slice(0, 16), slice(16, 32)), (slice(16, 32), slice(0, 16))),
)
plant(
    "matmul",
    "misses the last block of the inner dimension",
    lambda _, left, right: left[:, :-32] @ right[:-32],
)
plant(
    "matmul",
    "adds what the tile before has left",
    changed(TILE, lambda x, *_: x + x.roll(32, -1)),
)
plant("matmul", "one tile is 3 % off", changed(TILE, lambda x, *_: x * 1.03))
plant("matmul", "LoFi in place of HiFi4", in_unit(1, wide=False))
plant("matmul", "HiFi2 in place of HiFi4", in_unit(2, wide=False))
plant("matmul", "rows are one too low", rolled(-2))
plant("matmul", "columns are one too far right", rolled(-1))
plant("matmul", "truncates in place of rounding", lambda _, left, right: truncated(left @ right))
plant("wide_matmul", "accumulates in bfloat16", in_unit(4, wide=False))
plant("wide_matmul", "LoFi in place of HiFi4", in_unit(1, wide=True))
plant("lofi_matmul", "times 1.05", scaled(1.05))
plant("lofi_matmul", "the last tile is zero", changed(LAST, 0.0))
plant(
    "large_matmul",
    "one element of a million has the wrong sign",
    changed((700, 3), lambda x, *_: -x),
)
plant("packed_matmul", "times 1.05", scaled(1.05))
plant("packed_matmul", "reads weights as bfloat4_b", lambda _, a, b: a @ packed(b, "bfloat4_b"))
plant("linear", "adds the bias of the next column", lambda _, a, b, c: a @ b + c.roll(1, -1))
plant("linear", "no bias in the last tile", changed(LAST, lambda x, a, b, c: x - c))
plant("softmax", "times 1.05", scaled(1.05))
plant("softmax", "the first tile is missing in the sum", lambda x, a: x / x[:, 32:].sum(-1, True))
plant("softmax", "by columns", lambda x, a: a.softmax(0))
plant(
    "padded_softmax",
    "padding counts as zeros",
    lambda _, a: a.exp() / (a.exp().sum(-1, keepdim=True) + 14),
)
plant("masked_softmax", "ignores the scale", lambda _, a, mask: (a + mask).softmax(-1))
plant("masked_softmax", "ignores the mask", lambda _, a, mask: (a * 0.125).softmax(-1))
plant("layer_norm", "the mean stays in the last row", changed((-1,), lambda x, a, w, b: a * w + b))
plant("layer_norm", "no weight in the last tile", changed(LAST, lambda x, a, w, b: (x - b) / w + b))
plant(
    "layer_norm",
    "divides by one less than the width",
    lambda x, a, w, b: (x - b) * math.sqrt(63 / 64) + b,
)
plant("rms_norm", "divides by the padded width of 160", lambda x, *_: x * math.sqrt(160 / 128))
plant("rms_norm", "times 1.01", scaled(1.01))
plant("add", "times 1.05", scaled(1.05))
plant("add", "one element has the wrong sign", changed((37, 111), lambda x, *_: -x))
plant("add", "the rows of a face are swapped", swapped((slice(0, 8),), (slice(8, 16),)))
plant("add_row", "adds the second row of the tile", lambda _, a, b: a + 0 * b)
plant("add_shards", "the first two shards are swapped", swapped((slice(0, 32),), (slice(32, 64),)))
plant("overflow", "NaN for an infinity", lambda x, *_: x.where(x.isfinite(), math.nan))
plant("overflow", "the wrong sign of an infinity", lambda x, *_: x.where(x.isfinite(), -x))
plant("overflow", "the largest number for an infinity", lambda x, *_: x.clamp(-3.39e38, 3.39e38))
plant("tiny", "flushes numbers below 1e-35", lambda x, *_: x.where(x.abs() > 1e-35, 0.0))
plant(
    "tiny",
    "unchanged, with flushed subnormal numbers",
    lambda x, *_: x.where(x.abs() >= 2.0**-126, 0.0),
)
plant("exp", "clipped at 2", lambda _, a: a.clamp(max=2).exp())
plant(
    "exp",
    "a Taylor series of 6 terms",
    lambda _, a: sum(a**n / math.factorial(n) for n in range(7)),
)
plant("silu", "its sigmoid saturates at 2", lambda _, a: a * a.clamp(-2, 2).sigmoid())
plant("relu", "leaks a hundredth", lambda x, a: x.where(a > 0, a / 100))
plant("relu", "unchanged, with negative zeros", lambda x, a: x.where(a > 0, -0.0))
plant("reciprocal", "zero above 2", lambda x, a: x.where(a.abs() < 2, 0.0))
plant("reciprocal", "4 % off", scaled(1.04))
plant("total", "reads a padding of ones", lambda x, *_: x + 14)
plant("total", "misses the last column", lambda x, a: a[:, :-1].sum(-1).reshape(x.shape))
plant("long_total", "accumulates in bfloat16", lambda x, a: narrow_sum(a).reshape(x.shape))
plant("mean", "divides by the padded width", scaled(50 / 64))
plant("largest", "reads a padding of zeros", lambda x, a: (-(-a).amax(-1)).reshape(x.shape))
plant("largest", "misses the last column", lambda x, a: a[:, :-1].amax(-1).reshape(x.shape))
plant("argmax", "counts within a tile", lambda x, *_: x % 32)
plant("argmax", "one index is off by one", changed((5,), lambda x, *_: x + 1))
plant("transpose", "one tile is not transposed", changed(TILE, lambda x, *_: x.clone().mT))
plant("concat", "the parts are swapped", rolled(0))
plant("concat", "one element is another", changed((3, 5), lambda x, *_: x + 0.1))
plant("heads", "in reverse order", lambda x, a: a.flip(1).transpose(1, 2).reshape(x.shape))
plant("narrowed", "an exponent for 32 numbers", lambda _, a: by_blocks(a, 32))
plant(
    "rows",
    "the rows of the last tile begin anew",
    changed((slice(32, 50),), lambda x, *_: x.roll(32, 0)),
)
plant("rows", "the last column is zero", changed((Ellipsis, -1), 0.0))


def truncated(numbers):
    import torch

    bits = numbers.float().view(torch.int32)
    return (bits & -65536).view(torch.float32)


def narrow_sum(numbers):
    """Return sums that are rounded to bfloat16 after each addition."""
    found = numbers[:, 0].bfloat16()
    for column in numbers.unbind(-1)[1:]:
        found = found + column.bfloat16()
    return found.float()


def packed(numbers, dtype):
    """Return numbers as ttnn holds them in a dtype."""
    import ttnn

    host = ttnn.from_torch(numbers, dtype=getattr(ttnn, dtype), layout=ttnn.TILE_LAYOUT)
    return host.to_torch().float()


def by_blocks(numbers, size):
    """Return numbers of which ``size`` in a row share an exponent and have seven bits."""
    import torch

    blocks = numbers.float().reshape(-1, size)
    step = 2.0 ** (torch.frexp(blocks.abs().amax(-1, keepdim=True))[1] - 7.0)
    return ((blocks / step).round() * step).reshape(numbers.shape)


def recorded(ttnn, torch, device):
    """Return a line of the log of op calls for each case."""

    def make(*shape, dtype=None, memory=None):
        return ttnn.from_torch(
            torch.randn(shape),
            dtype=dtype or ttnn.bfloat16,
            layout=ttnn.TILE_LAYOUT,
            device=device,
            memory_config=memory,
        )

    lines = {}
    with tempfile.TemporaryDirectory() as directory:
        for name, call in CASES.items():
            log = Path(directory) / f"{name}.jsonl"
            with optrove.trace(Path(directory) / "trove.db", jsonl=log):
                call(ttnn, make)
            lines[name] = [json.loads(line) for line in log.read_text().splitlines()][-1]
    return lines


def _bound(board):
    """Return a function, which Python binds to an operation, unlike a method of a board."""

    def call(operation, *arguments, **keywords):
        return board.run(operation, *arguments, **keywords)

    return call


class Board:
    """Runs the calls of ttnn with a fault in one of its kernels."""

    def __init__(self, ttnn, torch):
        self._ttnn, self._torch = ttnn, torch
        self.op = self.kernel = None
        self._is_reading = False
        fast = ttnn.decorators.FastOperation
        self._call, fast.__call__ = fast.__call__, _bound(self)

    def run(self, operation, *arguments, **keywords):
        from optrove.frameworks.ttnn.shadow.shadow import is_shadow_call

        plain = self._is_reading or is_shadow_call() or self.kernel is None
        if plain or operation.python_fully_qualified_name != self.op:
            return self._call(operation, *arguments, **keywords)
        self._is_reading = True
        try:
            inputs = [self._numbers(each) for each in self._tensors((arguments, keywords))]
            result = self._call(operation, *arguments, **keywords)
            self._put(result, self.kernel(self._numbers(result), *inputs))
        finally:
            self._is_reading = False
        return result

    def _tensors(self, live):
        if isinstance(live, self._ttnn.Tensor):
            yield live
        elif isinstance(live, (list, tuple)):
            for each in live:
                yield from self._tensors(each)
        elif isinstance(live, dict):
            yield from self._tensors(list(live.values()))

    def _numbers(self, tensor):
        found = self._ttnn.to_torch(tensor)
        return found.float() if found.is_floating_point() else found.to(self._torch.int64)

    def _put(self, tensor, numbers):
        from optrove.frameworks.ttnn.shadow.host_mirrors import HostMirror
        from optrove.frameworks.ttnn.shadow.shadow import set_shadow_mirror
        from optrove.frameworks.ttnn.shadow.transfers import shadow_calls

        kind = self._torch.float32 if numbers.is_floating_point() else self._torch.int32
        blocks = tensor.dtype in (self._ttnn.bfloat8_b, self._ttnn.bfloat4_b)
        layout = self._ttnn.TILE_LAYOUT if blocks else self._ttnn.ROW_MAJOR_LAYOUT
        with shadow_calls():
            host = self._ttnn.from_torch(numbers.to(kind), dtype=tensor.dtype, layout=layout)
            set_shadow_mirror(self._ttnn, tensor, HostMirror((host,)))


def main():
    ideal = NUMERICS == "ideal"
    with optrove.mock_board("n150", shadow=True, numerics="ideal" if ideal else "hardware"):
        import torch
        import ttnn

        from optrove.frameworks.installed import LoadedTables
        from optrove.frameworks.ttnn.execute import device_judge
        from optrove.frameworks.ttnn.execute.execution import CallerDeviceExecutor
        from optrove.model.records import OTHERWISE, DeviceKind
        from optrove.replay.execute import JobExecutor
        from optrove.replay.messages import WorkerSetup
        from optrove.replay.planning import planned_line
        from optrove.serializer.op_lines import op_line_from_builtins

        if NUMERICS == "held":
            device_judge.VERIFIED = ""
            os.environ["OPTROVE_NUMERICS"] = "hardware"
        device = ttnn.open_device(device_id=0)
        board = Board(ttnn, torch)
        lines = recorded(ttnn, torch, device)
        kind = DeviceKind.SHADOW if ideal else DeviceKind.HARDWARE
        executor = CallerDeviceExecutor(ttnn, LoadedTables(), kind, device)
        execution = JobExecutor(executor, WorkerSetup("0" * 32, kind, "n150"))
        right = {f"{name}: unchanged": (name, None) for name in CASES}
        found = {}
        for words, (name, kernel) in {**right, **FAULTS}.items():
            planned = planned_line(op_line_from_builtins(lines[name]), seed=1)
            board.op, board.kernel = planned.op, kernel
            attempt = execution.attempt(planned.job, planned.case_id, lambda _: None)
            notes = (note for note in attempt.notes if OTHERWISE in note)
            passed = attempt.outcome.value == "passed"
            found[words] = next(notes, None) if passed else attempt.cause
        executor.close()
        sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
