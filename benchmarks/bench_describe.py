"""What describing costs: with and without the cache, beside ttnn's own way to record the same."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import optrove
from optrove.serializer import plain
from optrove.serializer.describe import Describer, DescriptionCache
from optrove.serializer.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = 2000
ROUNDS = 7


def microseconds(action: Callable[[], Any]) -> float:
    """Return the time of one call, in a loop."""
    start = time.perf_counter()
    for _ in range(CALLS):
        action()
    return (time.perf_counter() - start) / CALLS * 1e6


def compare(name: str, actions: dict[str, Callable[[], Any]]) -> None:
    """Print the medians of all ways to do one thing, measured in turns, and their ratios."""
    times: dict[str, list[float]] = {label: [] for label in actions}
    for _ in range(ROUNDS):
        for label, action in actions.items():
            times[label].append(microseconds(action))
    medians = {label: statistics.median(found) for label, found in times.items()}
    base = next(iter(medians.values()))
    for label, median in medians.items():
        print(f"{name:24} {label:22} {median:8.2f} us  {median / base:6.2f}x")


def main() -> None:
    """Measure on a mock N150."""
    with optrove.mock_board("n150"):
        import ttnn
        from ttnn.config_serialization import memory_config_to_dict

        from optrove.frameworks.ttnn.convert.table import table

        tables = Tables([table(), plain.table()])
        cache = DescriptionCache()
        device = ttnn.open_device(device_id=0)
        memory = ttnn.create_sharded_memory_config(
            [1, 1, 2048, 64], core_grid=ttnn.CoreGrid(x=8, y=8), strategy=ttnn.ShardStrategy.HEIGHT
        )
        tensor = ttnn.zeros(
            [1, 1, 2048, 64],
            dtype=ttnn.bfloat16,
            layout=ttnn.TILE_LAYOUT,
            device=device,
            memory_config=memory,
        )
        compute = ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.HiFi2)
        call = {"input_tensor_a": tensor, "input_tensor_b": tensor, "memory_config": memory}
        for name, live in (
            ("sharded memory config", memory),
            ("compute kernel config", compute),
            ("sharded tensor", tensor),
            ("call of ttnn.add", call),
        ):
            ways: dict[str, Callable[[], Any]] = {
                "described": lambda live=live: Describer(tables).describe(live),
                "described, cached": lambda live=live: Describer(tables, cache=cache).describe(
                    live
                ),
            }
            if live is memory:
                ways["ttnn's own text"] = lambda: memory_config_to_dict(memory)
            compare(name, ways)
        compare("one op, for scale", {"ttnn.add": lambda: ttnn.add(tensor, tensor)})
        ttnn.close_device(device)


if __name__ == "__main__":
    main()
