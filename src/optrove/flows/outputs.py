"""What a trace writes besides its journal, and the sinks that write it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from optrove.capture.oplines import OpLines
from optrove.capture.parameters import ParameterFiles
from optrove.capture.sketches import Sketches
from optrove.capture.tracing import active_tracing
from optrove.errors import UnusableResults

if TYPE_CHECKING:
    from pathlib import Path

    from optrove.capture.sinks import Sink
    from optrove.codec.text import Json


@dataclass(frozen=True, slots=True)
class Outputs:
    """What is asked for: lines, one file per call (with values or not), sketches."""

    jsonl: Path | None = None
    params_dir: Path | None = None
    values: bool = False
    sketch: bool = False


def sinks_of(outputs: Outputs) -> tuple[Sink, ...]:
    """Return the sinks that write ``outputs``; UnusableResults when a file cannot be opened."""
    sinks: list[Sink] = []
    if outputs.jsonl is not None:
        try:
            sinks.append(OpLines(outputs.jsonl))
        except OSError as error:
            raise UnusableResults(
                f"the lines of op calls cannot be written to {outputs.jsonl}: {error}; "
                f"choose another file"
            ) from error
    directory = outputs.params_dir
    if directory is not None:
        sinks.append(ParameterFiles(lambda: directory, values=outputs.values))
    if outputs.sketch:
        sinks.append(Sketches(_write_to_journal))
    return tuple(sinks)


def _write_to_journal(data: Json) -> None:
    tracing = active_tracing()
    # None for a call that ends in another thread just when the trace does.
    if tracing is not None:
        tracing.journal.write(data)
