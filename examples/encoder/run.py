"""Run both variants of the encoder block on a mock N300 and say what happened."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

import optrove
from optrove.backends.ttnn.boards import find_board
from optrove.flows.query import Asked, ops_asked
from optrove.flows.stores import reading
from optrove.report.ops_text import ops_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

BOARD = "n300"
STORE = Path(".optrove") / "demo.db"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one variant of the block did; ``pcc`` is None where nothing computed numbers."""

    variant: str
    weights: str
    op_calls: int
    new_cases: int
    output: str
    pcc: float | None


def run(store: Path, board: str = BOARD) -> list[Outcome]:
    """Run the block on a mock board and record its calls; with numbers where torch is there."""
    sys.path.insert(0, str(Path(__file__).parent))
    shadow = find_spec("torch") is not None
    with optrove.mock_board(board, shadow=shadow):
        import ttnn  # the board has to be there first

        device = ttnn.open_device(device_id=0)
        try:
            dtypes = (ttnn.bfloat16, ttnn.bfloat8_b, ttnn.bfloat4_b)
            runs = (_variants(device, dtype, store, shadow=shadow) for dtype in dtypes)
            return [outcome for variants in runs for outcome in variants]
        finally:
            ttnn.close_device(device)


def _variants(device: Any, dtype: Any, store: Path, *, shadow: bool) -> Iterator[Outcome]:
    import encoder  # imports ttnn, which the board has to precede
    import weights as example  # stands beside the encoder

    weights = example.make_weights()
    parameters = encoder.load(weights, device, dtype)
    hidden = encoder.to_device(example.make_input(), device)
    for name, block in encoder.VARIANTS.items():
        with optrove.trace(store, model=f"encoder {name} {dtype.name.lower()}") as trace:
            output = block(hidden, parameters)
        yield Outcome(
            variant=name,
            weights=dtype.name.lower(),
            op_calls=trace.summary().calls,
            new_cases=trace.summary().cases - trace.summary().known_cases,
            output=f"{'x'.join(map(str, output.shape))} {output.dtype.name.lower()}",
            pcc=_pcc(output, example.make_input(), weights) if shadow else None,
        )


def _pcc(output: Any, array: Any, weights: Any) -> float:
    import reference  # needs torch, which the rest does without
    import ttnn  # the board has to be there first

    return float(reference.pcc(reference.encoder(array, weights), ttnn.to_torch(output).float()))


def main(console: Console | None = None) -> None:
    """Show what the block did on the mock board, one row per run."""
    console = console or Console(highlight=False)
    _forget(STORE)
    outcomes = run(STORE)
    board = find_board(BOARD)
    computed = all(outcome.pcc is not None for outcome in outcomes)
    console.print(
        f"[bold]A transformer encoder block on a mock board[/]: {board.title}.\n"
        f"The real ttnn {version('ttnn')} validated each call and inferred each output."
    )
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("variant", "weights", "op calls", "new cases", "output", "PCC"):
        table.add_column(column)
    for outcome in outcomes:
        table.add_row(
            outcome.variant,
            outcome.weights,
            str(outcome.op_calls),
            str(outcome.new_cases),
            outcome.output,
            "-" if outcome.pcc is None else f"{outcome.pcc:.5f}",
        )
    console.print(table)
    if computed:
        console.print("Numbers: torch computed beside each op, ttnn's own packing rounded them.")
    else:
        console.print(
            "No PCC: torch is not installed. With it, numbers are computed beside each op."
        )
    console.print(f"\nEvery call is in the trove {STORE}, each different one once:\n")
    with reading(str(STORE)) as reader:
        rows = ops_asked(reader, Asked())
    for line in ops_lines(rows, all_ops=False, width=console.width):
        console.print(line, markup=False)
    console.print(f"\nNext: optrove show linear --store {STORE}   optrove trace your_test.py")


def _forget(store: Path) -> None:
    """Begin with an empty trove, whenever the demo is run."""
    for left in store.parent.glob(f"{store.name}*"):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()


if __name__ == "__main__":
    main()
