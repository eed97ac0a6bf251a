"""Show, compare and check files of model configurations, without a device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from optrove.errors import NotComparable
from optrove.runconfig.gathering import gathered
from optrove.runconfig.inspecting import Inspected, config_faults, inspect

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from optrove.errors import Fault

__all__ = ["Checked", "check_files", "compared", "gathered", "inspect"]


@dataclass(frozen=True, slots=True)
class Checked:
    """What is wrong with one file; ``signatures`` tells whether ttnn was there to be asked."""

    file: Path
    faults: tuple[Fault, ...]
    signatures: bool


def check_files(files: Sequence[Path], weights: Path | None) -> list[Checked]:
    """Check files of configurations; BadData or BadTarget for one that cannot be read."""
    from optrove.backends.ttnn.op_parameters import installed

    parameters = installed()
    return [
        Checked(file, tuple(config_faults(file, parameters, weights)), parameters is not None)
        for file in files
    ]


def compared(
    files: Sequence[Path], layers: tuple[str, str] | None, paths: tuple[str, str] | None
) -> list[tuple[Inspected, Inspected]]:
    """Return what is to be compared: two files, the two modes of one, or two parts of each.

    NotComparable where there are no two.
    """
    found = [inspected for file in files for inspected in inspect(file)]
    if paths is not None:
        return [(_part(each, paths[0]), _part(each, paths[1])) for each in found]
    if layers is not None:
        return [
            (_part(each, place + layers[0]), _part(each, place + layers[1]))
            for each in found
            for place in [_layers(each, layers)]
        ]
    if len(files) == 1:
        return [_two(found, f"{files[0]} holds one configuration")]
    modes = {each.mode for each in found}
    return [_two([each for each in found if each.mode == mode], mode) for mode in sorted(modes)]


def _two(found: list[Inspected], told: str) -> tuple[Inspected, Inspected]:
    if len(found) != 2:  # noqa: PLR2004 - a comparison is of two
        raise NotComparable(
            f"{told or 'found'}: {len(found)} to compare; give two files, one with prefill and "
            f"decode, or --layers A B or --paths A B for two parts of one"
        )
    return found[0], found[1]


def _part(inspected: Inspected, path: str) -> Inspected:
    prefix = f"{path}."
    entries = {
        "." if place == path else place.removeprefix(prefix): value
        for place, value in inspected.entries.items()
        if place == path or place.startswith(prefix)
    }
    if not entries:
        raise NotComparable(
            f"{inspected.name} has nothing at {path!r}; see its paths with "
            f"optrove config show {inspected.file}"
        )
    return replace(inspected, mode=f"{inspected.mode} {path}".strip(), entries=entries)


def _layers(inspected: Inspected, layers: tuple[str, str]) -> str:
    """Return the path before the numbers of layers: the outermost numbers that there are."""
    for path in inspected.entries:
        steps = path.split(".")
        for place, step in enumerate(steps):
            if step.isdecimal():
                return "".join(f"{each}." for each in steps[:place])
    raise NotComparable(
        f"{inspected.name} has no numbered layers, asked for are {layers[0]} and {layers[1]}; "
        f"name the parts with --paths A B"
    )
