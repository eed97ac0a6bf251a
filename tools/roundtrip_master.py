"""Prove that a master file's tensors and configurations survive the converters.

Every tensor and configuration of the file is parsed, made as a live ttnn object on a mock board,
described again, and compared field by field with what the file says:

    python tools/roundtrip_master.py master.json --board galaxy

Prints counts per kind and every difference with its JSON path; exit code 1 if there is any.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optrove
from optrove.errors import BadData
from optrove.interop.master_values import ArgumentReader
from optrove.model.values import (
    DeviceRef,
    FrozenSet,
    Handle,
    List,
    MeshPlacement,
    Opaque,
    Set,
    Struct,
    Symbol,
    TensorSpec,
    TtnnPlacement,
    Value,
)
from optrove.serializer import plain
from optrove.serializer.build import build
from optrove.serializer.describe import describe
from optrove.serializer.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("tensor", "memory config", "program config", "compute config", "other", "plain value")
VERDICTS = ("equal", "different", "unparsed")


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that the file describes, with its JSON path."""

    path: str
    value: Value


def parts(document: dict[str, Any]) -> Iterator[Part]:
    """Yield every argument of every configuration; members of lists and tensors' parts alone."""
    reader = ArgumentReader()
    for op, entry in document["operations"].items():
        for index, configuration in enumerate(entry["configurations"]):
            case, _ = reader.case(op, configuration["arguments"].items(), printed=False)
            for name, value in case.arguments:
                path = f"$.operations['{op}'].configurations[{index}].arguments.{name}"
                yield from _parts(value, path)


def _parts(value: Value, path: str) -> Iterator[Part]:
    match value:
        case List(items) if any(isinstance(item, TensorSpec | Handle) for item in items):
            for index, item in enumerate(items):
                yield from _parts(item, f"{path}[{index}]")
        case TensorSpec(placement=TtnnPlacement(memory=Struct() as memory)):
            yield Part(path, value)
            yield Part(f"{path}.memory_config", memory)
        case _:
            yield Part(path, value)


def kind_of(value: Value) -> str:
    """Return the line of the summary that a part belongs to."""
    match value:
        case TensorSpec():
            return "tensor"
        case Struct(type="ttnn.MemoryConfig"):
            return "memory config"
        case Struct(type=name) if name.endswith("ProgramConfig"):
            return "program config"
        case Struct(type=name) if name.endswith("ComputeKernelConfig"):
            return "compute config"
        case Struct() | Symbol() | DeviceRef() | Handle() | Set() | FrozenSet() | Opaque():
            return "other"
        case _:
            return "plain value"


class Rebuilder:
    """Builds live objects of parts on an open mesh, and returns their differences from the file."""

    def __init__(self, ttnn: Any, mesh: Any, tables: Tables) -> None:
        self.ttnn = ttnn
        self.mesh = mesh
        self.tables = tables
        self.supplied = 0
        rows, columns = mesh.shape[0], mesh.shape[1]
        self.coordinates = tuple(product(range(rows), range(columns)))

    def differences(self, value: Value) -> list[str]:
        """Return the differences from the file, field by field."""
        match value:
            case TensorSpec(placement=TtnnPlacement() as placement):
                return list(self._tensor(value, placement))
            case Handle():
                return list(self._handle(value))
        live = build(value, self.tables, self.mesh)
        return list(unlike(value, describe(live, self.tables), ""))

    def _tensor(self, recorded: TensorSpec, placement: TtnnPlacement) -> Iterator[str]:
        ttnn = self.ttnn
        if placement.memory is None or placement.mesh is None:
            yield "the file has no placement"
            return
        live = ttnn.allocate_tensor_on_device(
            ttnn.Shape(recorded.shape),
            ttnn.DataType[recorded.dtype.removeprefix("ttnn.").upper()],
            ttnn.Layout[placement.layout],
            self.mesh,
            build(placement.memory, self.tables),
        )
        live.update_tensor_topology(self._topology(placement.mesh))
        found = describe(live, self.tables)
        ttnn.deallocate(live)
        if not isinstance(found, TensorSpec) or not isinstance(found.placement, TtnnPlacement):
            yield f"described as {found}"
            return
        rebuilt = found.placement
        facts = {
            "shape": (recorded.shape, found.shape),
            "dtype": (recorded.dtype, found.dtype),
            "layout": (placement.layout, rebuilt.layout),
            "padded shape": (placement.padded_shape, rebuilt.padded_shape),
            "tile": (placement.tile, rebuilt.tile),
            "storage": (placement.storage, rebuilt.storage),
            "mesh shape": (placement.mesh_shape, rebuilt.mesh_shape),
            "placement": (placement.mesh, rebuilt.mesh),
        }
        yield from (f"{name}: {a} became {b}" for name, (a, b) in facts.items() if a != b)
        yield from unlike(placement.memory, rebuilt.memory, "memory_config")

    def _topology(self, recorded: MeshPlacement) -> Any:
        ttnn = self.ttnn
        placements = [
            ttnn.PlacementReplicate() if dim is None else ttnn.PlacementShard(dim)
            for dim in recorded.placements
        ]
        chips = [ttnn.MeshCoordinate(chip) for chip in self.coordinates]
        return ttnn.TensorTopology(ttnn.MeshShape(recorded.distribution_shape), placements, chips)

    def _handle(self, recorded: Handle) -> Iterator[str]:
        """Create a semaphore; the file has no recipe, so one is supplied."""
        grid = self.mesh.compute_with_storage_grid_size()
        cores = self.ttnn.CoreRange(self.ttnn.CoreCoord(0, 0), self.ttnn.CoreCoord(grid.x - 1, 0))
        recipe = {
            "cores": self.ttnn.CoreRangeSet([cores]),
            "initial_value": 0,
            "buffer_type": self.ttnn.BufferType.L1,
        }
        fields = tuple((name, describe(item, self.tables)) for name, item in recipe.items())
        live = build(Handle(recorded.type, Struct(recorded.type, fields)), self.tables, self.mesh)
        self.supplied += 1
        found = describe(live, self.tables)
        if not isinstance(found, Handle) or found.type != recorded.type:
            yield f"{recorded.type} became {found}"


def unlike(recorded: Value | None, found: Value | None, path: str) -> Iterator[str]:
    """Yield the differences of ``found`` from the file; fields that the file lacks do not count."""
    if isinstance(recorded, Struct) and isinstance(found, Struct) and recorded.type == found.type:
        fields = dict(found.fields)
        for name, value in recorded.fields:
            yield from unlike(value, fields.get(name), f"{path}.{name}")
    elif recorded != found:
        yield f"{path or 'value'}: {recorded} became {found}"


def check(part: Part, rebuilder: Rebuilder) -> tuple[str, list[str]]:
    """Return the verdict on one part and what is wrong with it."""
    if isinstance(part.value, Opaque):
        return "unparsed", [f"{part.value.type} has no known form: {part.value.token!r}"]
    try:
        problems = rebuilder.differences(part.value)
    except (BadData, RuntimeError) as error:
        problems = [str(error).splitlines()[0]]
    return ("different" if problems else "equal"), problems


def report(document: dict[str, Any], rebuilder: Rebuilder) -> bool:
    """Check every part, print what was found, and tell whether all of it was equal."""
    counts: Counter[tuple[str, str]] = Counter()
    for part in parts(document):
        verdict, problems = check(part, rebuilder)
        counts[kind_of(part.value), verdict] += 1
        for problem in problems:
            print(f"{part.path}: {problem}")
    configurations = sum(len(op["configurations"]) for op in document["operations"].values())
    print(f"{configurations} configurations of {len(document['operations'])} operations")
    print(f"{'':16}{'total':>8}" + "".join(f"{verdict:>11}" for verdict in VERDICTS))
    for kind in KINDS:
        row = [counts[kind, verdict] for verdict in VERDICTS]
        print(f"{kind + 's':16}{sum(row):>8}" + "".join(f"{count:>11}" for count in row))
    print(f"{rebuilder.supplied} semaphores were made from a supplied recipe")
    total = sum(counts.values())
    return total > 0 and total == sum(counts[kind, "equal"] for kind in KINDS)


def main() -> int:
    """Run the command; 0 if everything in the file survived."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--board", default="galaxy")
    parser.add_argument("--mesh", type=int, nargs=2, default=(4, 8), metavar=("ROWS", "COLUMNS"))
    options = parser.parse_args()
    document = json.loads(options.file.read_text())
    with optrove.mock_board(options.board):
        # Only now, since ttnn looks for its board when it is imported.
        import ttnn

        from optrove.frameworks.ttnn.convert import table as values

        tables = Tables([values.table(), plain.table()])
        ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
        mesh = ttnn.open_mesh_device(ttnn.MeshShape(*options.mesh))
        try:
            return 0 if report(document, Rebuilder(ttnn, mesh, tables)) else 1
        finally:
            ttnn.close_mesh_device(mesh)
            ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)


if __name__ == "__main__":
    sys.exit(main())
