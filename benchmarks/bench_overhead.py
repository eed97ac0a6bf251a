"""What tracing costs: untraced, traced by optrove, and by ttnn's own tracer, in one process.

All three run the same workloads on a mock N150, in turns, so that a slow moment of the machine
hits each of them. ttnn's own tracer needs the slow runtime mode and writes one file per call.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optrove
from optrove.frameworks.ttnn.probe.patching import unpatched
from optrove.journal.format import CALLS as CALLS_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUNDS = 36
CALLS = 480
"""The calls of a round: few, so that some rounds are left alone by other work on the machine."""

OWN_REPEATS = 2
SHAPES = 120

Workload = tuple[str, int, "Callable[[], None]"]


def workloads(ttnn: Any, device: Any) -> Iterator[Workload]:
    """Yield the name, the number of op calls, and the function that makes them."""
    yield "four ops", 4, four_ops(ttnn, device)
    yield "encoder layer", 14, encoder_layer(ttnn, device)
    yield "decode loop", 80, decode_loop(ttnn, device)


def four_ops(ttnn: Any, device: Any) -> Callable[[], None]:
    """Return a tight loop's body of four small ops."""
    a, b = (random(ttnn, device, (1, 1, 64, 64)) for _ in range(2))

    def run() -> None:
        c = ttnn.add(a, b)
        d = ttnn.relu(c)
        e = ttnn.matmul(d, b)
        ttnn.reshape(e, (1, 1, 32, 128))

    return run


def encoder_layer(ttnn: Any, device: Any) -> Callable[[], None]:
    """Return one layer of the example encoder."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "encoder"))
    import encoder
    import weights

    values = weights.make_weights()
    parameters = encoder.load(values, device)
    shape = (weights.BATCH, weights.SEQUENCE, weights.HIDDEN)
    hidden = random(ttnn, device, shape)
    return lambda: encoder.encoder(hidden, parameters)


def decode_loop(ttnn: Any, device: Any) -> Callable[[], None]:
    """Return eight layers of decoding, each with its own weights and the same configurations."""
    hidden_size, wide = 1024, 2048
    grid = ttnn.CoreGrid(y=4, x=8)
    sharded = ttnn.create_sharded_memory_config(
        (32, hidden_size // 32),
        grid,
        ttnn.ShardStrategy.WIDTH,
        use_height_and_width_as_shard_shape=True,
    )
    compute = ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.HiFi2)

    up_program, down_program = program(ttnn, wide, hidden_size), program(ttnn, hidden_size, wide)
    layers = [
        tuple(
            random(ttnn, device, shape)
            for shape in ((hidden_size, wide), (hidden_size, wide), (wide, hidden_size))
        )
        for _ in range(8)
    ]
    scale = random(ttnn, device, (1, 1, 1, hidden_size))
    start = random(ttnn, device, (1, 1, 32, hidden_size))
    memory = ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG

    def run() -> None:
        x = start
        for gate, up, down in layers:
            normed = ttnn.rms_norm(x, epsilon=1e-5, weight=scale)
            spread = ttnn.to_memory_config(normed, sharded)
            kwargs = {"memory_config": memory, "compute_kernel_config": compute}
            left = ttnn.linear(spread, gate, program_config=up_program, **kwargs)
            right = ttnn.linear(spread, up, program_config=up_program, **kwargs)
            active = ttnn.silu(left, memory_config=memory)
            both = ttnn.mul(active, right, memory_config=memory)
            out = ttnn.linear(both, down, program_config=down_program, **kwargs)
            flat = ttnn.to_memory_config(out, ttnn.DRAM_MEMORY_CONFIG)
            ttnn.deallocate(out)
            x = ttnn.add(x, flat)

    return run


def program(ttnn: Any, width: int, depth: int) -> Any:
    """Return a configuration of a matmul on 8x4 cores."""
    return ttnn.MatmulMultiCoreReuseMultiCast1DProgramConfig(
        compute_with_storage_grid_size=ttnn.CoreCoord(8, 4),
        in0_block_w=depth // 32 // 32,
        out_subblock_h=1,
        out_subblock_w=1,
        per_core_M=1,
        per_core_N=width // 32 // 32,
        fuse_batch=True,
        fused_activation=None,
        mcast_in0=True,
    )


def random(ttnn: Any, device: Any, shape: tuple[int, ...]) -> Any:
    """Return a tensor on the device."""
    return ttnn.rand(list(shape), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)


def microseconds(run: Callable[[], None], calls: int, repeats: int) -> float:
    """Return the median time of one op call within a workload."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / calls / 1000


@contextmanager
def own_tracer(ttnn: Any, directory: Path) -> Iterator[None]:
    """Switch ttnn's own tracer on, which works in the slow runtime mode only."""
    before = ttnn.CONFIG.enable_fast_runtime_mode, ttnn.CONFIG.root_report_path
    ttnn.CONFIG.enable_fast_runtime_mode = False
    ttnn.CONFIG.root_report_path = str(directory)
    ttnn.operation_tracer.enable_tracing(enable=True)
    try:
        yield
    finally:
        ttnn.operation_tracer.enable_tracing(enable=False)
        ttnn.CONFIG.enable_fast_runtime_mode, ttnn.CONFIG.root_report_path = before


def measure(ttnn: Any, workload: Workload, directory: Path) -> dict[str, list[float]]:
    """Return the times of one op call, untraced and traced in turns, and by ttnn's tracer."""
    _, calls, run = workload
    times: dict[str, list[float]] = {"untraced": [], "optrove": [], "ttnn's tracer": []}
    repeats = CALLS // calls
    for _ in range(ROUNDS):
        microseconds(run, calls, 2)
        times["optrove"].append(microseconds(run, calls, repeats))
        with unpatched(ttnn):
            microseconds(run, calls, 2)
            times["untraced"].append(microseconds(run, calls, repeats))
    with unpatched(ttnn), own_tracer(ttnn, directory):
        microseconds(run, calls, 1)
        for _ in range(OWN_REPEATS):
            times["ttnn's tracer"].append(microseconds(run, calls, OWN_REPEATS))
    return times


def show(name: str, times: dict[str, list[float]]) -> None:
    """Print one workload: the best round of each way, what that adds, and the ratio.

    The best, since other work on the machine only ever makes a round slower.
    """
    untraced = min(times["untraced"])
    added = {way: min(found) - untraced for way, found in times.items()}
    for way, found in times.items():
        best = min(found)
        print(f"{name:14} {way:14} {best:9.1f} {added[way]:9.2f} {best / untraced:8.2f}x")
    times_as_much = added["ttnn's tracer"] / added["optrove"]
    print(f"{name:14} ttnn's tracer adds {times_as_much:.0f} times as much")


def first_sight(ttnn: Any, device: Any) -> float:
    """Return the extra cost of the first call of a case over an untraced call, in us.

    By the best of several operations, traced and untraced; of the calls of each, the median.
    """
    tensors = [random(ttnn, device, (1, 1, 32, 32 * size)) for size in range(1, SHAPES)]
    plain, traced = [], []
    for op in (ttnn.neg, ttnn.exp, ttnn.sin, ttnn.cos, ttnn.sqrt):
        with unpatched(ttnn):
            for tensor in tensors:
                op(tensor)  # once, for ttnn to build its programs
            plain.append(statistics.median(timed(partial(op, tensor)) for tensor in tensors))
        traced.append(statistics.median(timed(partial(op, tensor)) for tensor in tensors))
    return min(traced) - min(plain)


def timed(action: Callable[[], object]) -> float:
    """Return the time of one call in microseconds."""
    start = time.perf_counter_ns()
    action()
    return (time.perf_counter_ns() - start) / 1000


def main() -> None:
    """Measure on a mock N150."""
    with (
        tempfile.TemporaryDirectory() as place,
        optrove.trace(Path(place) / "trove.db") as trace,
        optrove.mock_board("n150"),
    ):
        import ttnn

        device = ttnn.open_device(device_id=0)
        print(f"{'workload':14} {'way':14} {'us/call':>9} {'added':>9} {'ratio':>9}")
        for workload in workloads(ttnn, device):
            show(workload[0], measure(ttnn, workload, Path(place) / "own"))
        print(f"first sight of a case adds {first_sight(ttnn, device):.0f} us")
        calls = trace.summary().accounting.observed
        size = sum(file.stat().st_size for file in trace.directory.glob(f"*{CALLS_FILE}"))
        print(f"journal: {size / calls:.1f} bytes per call, {calls} calls")
        ttnn.close_device(device)


if __name__ == "__main__":
    main()
