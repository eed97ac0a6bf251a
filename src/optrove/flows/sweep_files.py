"""Write the results of a sweep to files, as tt-metal's ``results_export/`` has them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from optrove.errors import UnusableResults
from optrove.plan.grouping import file_stem
from optrove.report.results_export import exported

if TYPE_CHECKING:
    from pathlib import Path

    from optrove.report.results import RunResults

_ID_SHOWN: Final = 12


def export_results(found: RunResults, destination: Path) -> tuple[Path, ...]:
    """Write results to a file of JSON, or to a directory: a file for each module or op.

    What does not end in .json is a directory. UnusableResults when it cannot be written.
    """
    rows: list[Any] = exported(found)
    if destination.suffix == ".json":
        _write(destination, rows)
        return (destination,)
    by_name: dict[str, list[Any]] = {}
    for row in rows:
        by_name.setdefault(row["sweep_name"], []).append(row)
    files = []
    for name, some in by_name.items():
        files.append(destination / f"{file_stem(name)}_{found.run.id[:_ID_SHOWN]}.json")
        _write(files[-1], some)
    return tuple(files)


def _write(path: Path, rows: list[Any]) -> None:
    """Write a file; it gets its name only when all of it is written."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_text(json.dumps(rows, indent=2), encoding="ascii")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise UnusableResults(f"{path} cannot be written: {error}; choose another place") from error
