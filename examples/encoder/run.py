"""Run both variants of the encoder block on a mock N300 and say what happened."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import contextmanager
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
from optrove.backends.ttnn.shadow import at_work

if TYPE_CHECKING:
    from collections.abc import Iterator

BOARD = "n300"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one variant of the block did; ``pcc`` is None where nothing computed numbers."""

    variant: str
    weights: str
    op_calls: int
    distinct_ops: int
    output: str
    pcc: float | None


def run(board: str = BOARD) -> list[Outcome]:
    """Run the block on a mock board, with numbers where torch is installed."""
    sys.path.insert(0, str(Path(__file__).parent))
    shadow = find_spec("torch") is not None
    with optrove.mock_board(board, shadow=shadow):
        import ttnn  # the board has to be there first

        device = ttnn.open_device(device_id=0)
        try:
            dtypes = (ttnn.bfloat16, ttnn.bfloat8_b, ttnn.bfloat4_b)
            runs = (_variants(device, dtype, shadow=shadow) for dtype in dtypes)
            return [outcome for variants in runs for outcome in variants]
        finally:
            ttnn.close_device(device)


def _variants(device: Any, dtype: Any, *, shadow: bool) -> Iterator[Outcome]:
    import encoder  # imports ttnn, which the board has to precede
    import weights as example  # stands beside the encoder

    weights = example.make_weights()
    parameters = encoder.load(weights, device, dtype)
    hidden = encoder.to_device(example.make_input(), device)
    for name, block in encoder.VARIANTS.items():
        with _counted_calls() as calls:
            output = block(hidden, parameters)
        yield Outcome(
            variant=name,
            weights=dtype.name.lower(),
            op_calls=calls.total(),
            distinct_ops=len(calls),
            output=f"{'x'.join(map(str, output.shape))} {output.dtype.name.lower()}",
            pcc=_pcc(output, example.make_input(), weights) if shadow else None,
        )


def _pcc(output: Any, array: Any, weights: Any) -> float:
    import reference  # needs torch, which the rest does without
    import ttnn  # the board has to be there first

    return float(reference.pcc(reference.encoder(array, weights), ttnn.to_torch(output).float()))


@contextmanager
def _counted_calls() -> Iterator[Counter[str]]:
    """Count the calls of ttnn's ops that the block makes, by op."""
    import ttnn  # the board has to be there first

    calls: Counter[str] = Counter()
    operation = ttnn.decorators.FastOperation
    original = operation.__call__

    def counted(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if not at_work():  # the shadow reads tensors through ttnn's ops too
            calls[self.python_fully_qualified_name] += 1
        return original(self, *arguments, **keywords)

    operation.__call__ = counted
    try:
        yield calls
    finally:
        operation.__call__ = original


def main(console: Console | None = None) -> None:
    """Show what the block did on the mock board, one row per run."""
    console = console or Console(highlight=False)
    outcomes = run()
    board = find_board(BOARD)
    computed = all(outcome.pcc is not None for outcome in outcomes)
    console.print(
        f"[bold]A transformer encoder block on a mock board[/]: {board.title}.\n"
        f"The real ttnn {version('ttnn')} validated each call and inferred each output."
    )
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("variant", "weights", "op calls", "ops", "output", "PCC"):
        table.add_column(column)
    for outcome in outcomes:
        table.add_row(
            outcome.variant,
            outcome.weights,
            str(outcome.op_calls),
            str(outcome.distinct_ops),
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
    console.print("Next: pytest --optrove-board t3k your_tests/   optrove boards   optrove doctor")


if __name__ == "__main__":
    main()
