"""How long a model takes on a mock board with numerics, beside its plain torch reference.

The encoder example at the sizes of a large BERT layer and at the sizes of its own tests: many
numbers, where torch's arithmetic decides, and few, where the calls themselves do. Both run in
turns in one process, after a first round that builds kernels; each number is the best round.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optrove

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLE = Path(__file__).parents[1] / "examples" / "encoder"
SIZES = {
    "a large BERT layer": {"BATCH": 8, "SEQUENCE": 384, "HIDDEN": 1024, "HEADS": 16},
    "the example's own": {},
}
BOUND = 3.0


def main() -> int:
    """Measure the sizes that were asked for; the exit code says whether the bound was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    sys.path.insert(0, str(EXAMPLE))
    with optrove.mock_board("n300", shadow=True):
        ratios = [_ratio(name, sizes, asked.rounds) for name, sizes in SIZES.items()]
    print(f"bound: {BOUND:g} times torch, at the sizes of a real model")
    return int(ratios[0] > BOUND)


def _ratio(name: str, sizes: dict[str, int], rounds: int) -> float:
    """Return how many times as long the shadow takes as torch."""
    for module in ("weights", "encoder", "reference"):
        sys.modules.pop(module, None)
    example = import_module("weights")
    for size, number in sizes.items():
        setattr(example, size, number)
    encoder, reference = import_module("encoder"), import_module("reference")
    import ttnn  # the board has to be there first

    device = ttnn.open_device(device_id=0)
    try:
        weights, array = example.make_weights(), example.make_input()
        parameters = encoder.load(weights, device)
        hidden = encoder.to_device(array, device)

        def shadow() -> Any:
            return ttnn.to_torch(encoder.encoder(hidden, parameters))

        pcc = reference.pcc(reference.encoder(array, weights), shadow().float())
        plain, shadowed = _best([lambda: reference.encoder(array, weights), shadow], rounds)
    finally:
        ttnn.close_device(device)
    print(
        f"{name}: torch float32 {plain * 1e3:.1f} ms, on a mock board with numerics "
        f"{shadowed * 1e3:.1f} ms, {shadowed / plain:.2f} times as long (PCC {pcc:.5f})"
    )
    return shadowed / plain


def _best(works: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Return the best time of each, measured in turns."""
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for place, work in enumerate(works):
            began = time.perf_counter()
            work()
            best[place] = min(best[place], time.perf_counter() - began)
    return best


if __name__ == "__main__":
    sys.exit(main())
