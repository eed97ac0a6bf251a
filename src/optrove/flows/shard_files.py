"""Write the pictures of the sharded tensors of cases to files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from optrove.codec.described import case_of
from optrove.errors import UnusableResults
from optrove.model.values import TensorSpec
from optrove.model.walk import walk
from optrove.report.shard_picture import shard_file

if TYPE_CHECKING:
    from pathlib import Path

    from optrove.model.trove import CaseRow

_SHORT: Final = 12
_LONGEST: Final = 80
# Names of arguments are data, and no part of a path.
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9_]+")


def write_pictures(row: CaseRow, directory: Path) -> tuple[Path, ...]:
    """Write a picture of each sharded tensor among the arguments of a case; return their paths.

    A file is named by the case and the place of the tensor, and replaced if it is there.
    UnusableResults when it cannot be written.
    """
    found: dict[Path, str] = {}
    for name, value in case_of(row.content).arguments:
        for place, part in walk(value, name):
            picture = shard_file(part) if isinstance(part, TensorSpec) else None
            if picture is not None:
                found[_unused(directory, row.case_id, place, found)] = picture
    try:
        if found:
            directory.mkdir(parents=True, exist_ok=True)
        for path, picture in found.items():
            path.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise UnusableResults(
            f"pictures cannot be written to {directory}: {error}; name another directory"
        ) from error
    return tuple(found)


def _unused(directory: Path, case_id: str, place: str, used: dict[Path, str]) -> Path:
    """Return a path for a tensor that no other tensor of the case has."""
    name = f"{case_id[:_SHORT]}-{_UNUSUAL.sub('-', place).strip('-')[:_LONGEST]}"
    path = directory / f"{name}.svg"
    number = 2
    while path in used:
        path = directory / f"{name}-{number}.svg"
        number += 1
    return path
