"""Hold a weight against what its list, its model and the mesh say about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optrove.backends.describe import describe
from optrove.backends.frameworks import loaded_tables
from optrove.model.values import Symbol
from optrove.runconfig.checking import shape_text
from optrove.runconfig.weights import file_problem, spread

if TYPE_CHECKING:
    from pathlib import Path

    from optrove.runconfig.placeholders import FromWeight
    from optrove.runconfig.weights import SavedWeight, WeightFacts


def saved_problems(
    saved: SavedWeight | None, file: Path, mesh_shape: tuple[int, ...] | None, *, verify: bool
) -> list[str]:
    """Return what is wrong with a file before it is loaded; ``saved`` tells how it was written."""
    if saved is None:
        return [] if file.exists() else [f"there is no file {file}; run convert_weights"]
    problem = file_problem(saved, file, verify=verify)
    if problem is not None:
        return [problem]
    if mesh_shape is not None and saved.mesh_shape != mesh_shape:
        made, found = shape_text(saved.mesh_shape), shape_text(mesh_shape)
        text = f"{file} was written for a {made} mesh, this one is {found}"
        return [f"{text}; run convert_weights with this one"]
    return []


def weight_problems(
    facts: WeightFacts, expected: FromWeight | None, mesh_shape: tuple[int, ...]
) -> list[str]:
    """Return in what a weight differs from what the model configuration expects of it."""
    if expected is None:
        return []
    told = [
        ("shape", expected.shape and shape_text(tuple(expected.shape)), shape_text(facts.shape)),
        ("dtype", _dtype(expected.dtype), facts.dtype),
        ("layout", _symbol(expected.layout), facts.layout),
    ]
    problems = [
        f"its {name} is {found}, expected is {wanted}; convert it so, or expect what it is"
        for name, wanted, found in told
        if wanted is not None and wanted != found
    ]
    memory = expected.memory_config
    if memory is not None and describe(memory, loaded_tables()) != facts.memory:
        problems.append("its memory configuration is another one than expected")
    if expected.sharding is not None:
        wanted = spread(expected.sharding.dims, mesh_shape, len(facts.shape))
        if wanted != facts.spread:
            problems.append(f"it is {_split(facts.spread)}, expected is {_split(wanted)}")
    return problems


def _split(found: tuple[tuple[int, int], ...]) -> str:
    parts = [f"dimension {dim} in {count} parts" for count, dim in found]
    return f"split: {' and '.join(parts)}" if parts else "a copy on every chip"


def _symbol(live: object) -> str | None:
    value = describe(live, loaded_tables())
    return value.name if isinstance(value, Symbol) else None


def _dtype(live: object) -> str | None:
    name = _symbol(live)
    return None if name is None else f"ttnn.{name.lower()}"
