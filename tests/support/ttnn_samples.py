"""Live ttnn objects for tests, made from the signatures of their classes.

``Samples`` gives a few objects per class, with every field unlike its default; ``Strategies`` gives
hypothesis strategies of the same classes.
"""

import enum
import inspect
import re
from pathlib import Path

from hypothesis import strategies as st

from optrove.frameworks.ttnn.convert.configs import Derived, constructors, properties
from optrove.frameworks.ttnn.signatures import read_stub, stubs

SCALARS = {
    "bool": [True, False],
    "int": [3, 2, 1, 5],
    "float": [0.5, 0.25],
    "str": ["red", "green"],
    "pathlib.Path": [Path("red"), Path("green")],
}


class Samples:
    """Sample objects for the annotations of one ttnn's signatures."""

    def __init__(self, ttnn, classes, table):
        self.ttnn = ttnn
        self.table = table
        everything = [*classes.values, *classes.enums]
        self.by_path = {f"{cls.__module__}.{cls.__qualname__}": cls for cls in everything}
        self.by_name = {name: cls for cls, name in {**classes.values, **classes.enums}.items()}

    def of(self, annotation, length=2):
        """Return at least two different objects of the annotated type, None apart."""
        first = alternatives(annotation)[0]
        if first in SCALARS:
            return SCALARS[first]
        if inner := item_type(first):
            items = self.of(inner)
            return [[items[(start + i) % 2] for i in range(length)] for start in (0, 1)]
        return self.of_class(self.by_path[first])

    def of_class(self, cls):
        """Return at least two different objects of a class."""
        if issubclass(cls, enum.Enum):
            return list(cls)[::-1]
        converter = self.table.by_type[cls]
        derived = getattr(converter.fields, "__self__", None)
        if isinstance(derived, Derived):
            return self._of_derived(cls, converter, derived)
        if "__int__" in vars(cls):
            return [cls(7), cls(3)]
        return SPECIAL[converter.name](self.ttnn, self)

    def _of_derived(self, cls, converter, derived):
        """Return two objects that differ from the default, and from each other, in every field."""
        annotations = self.annotations(cls)
        defaults = self.defaults(cls, converter)
        first, second = {}, {}
        for field, _ in derived.readers:
            default = defaults.get(field)
            length = len(default) if isinstance(default, list) and default else 2
            choices = [v for v in self.of(annotations[field], length) if not same(v, default)]
            first[field], second[field] = choices[0], choices[-1]
        return [converter.make(first), converter.make(second)]

    def annotations(self, cls):
        """Return the type of every field: of its constructor argument, else of its property."""
        found = {
            name: member.fget.__nb_signature__[0][0].split(" -> ")[1]
            for name, member in properties(cls).items()
        }
        for overload in constructors(cls):
            for name, annotation in overload.annotations.items():
                found.setdefault(name, annotation)
                if "::" in found[name]:
                    found[name] = annotation
        return found

    def defaults(self, cls, converter):
        """Return the defaults of all fields that have one."""
        if any(not overload.names for overload in constructors(cls)):
            return converter.fields(cls())
        found = {}
        for stub, values in stubs(inspect.getattr_static(cls, "__init__")):
            defaults = read_stub(stub).defaults
            found.update({name: values[index] for name, index in defaults.items()})
        return found


class Strategies:
    """Strategies of live objects, for all classes that have a converter."""

    def __init__(self, samples):
        self.samples = samples
        self.ttnn = samples.ttnn
        self.table = samples.table

    def of(self, annotation, length=None):
        """Return a strategy of the annotated type; one length for arrays whose length is fixed."""
        parts = [self._of_one(part, length) for part in alternatives(annotation)]
        return st.one_of(*parts, *([st.none()] if annotation.endswith("| None") else []))

    def _of_one(self, annotation, length):
        if annotation in SCALARS:
            return SCALAR_STRATEGIES[annotation]
        if inner := item_type(annotation):
            bounds = {"max_size": 4} if length is None else {"min_size": length, "max_size": length}
            return st.lists(self.of(inner), **bounds)
        return self.of_class(self.samples.by_path[annotation])

    def of_class(self, cls):
        """Return a strategy of a class's objects."""
        if issubclass(cls, enum.Enum):
            return st.sampled_from(list(cls))
        converter = self.table.by_type[cls]
        if converter.name in BUILDERS:
            return BUILDERS[converter.name](self.ttnn, self)
        derived = getattr(converter.fields, "__self__", None)
        if not isinstance(derived, Derived):
            return st.sampled_from(self.samples.of_class(cls))
        annotations = self.samples.annotations(cls)
        defaults = self.samples.defaults(cls, converter)
        fields = {
            field: self.of(annotations[field], fixed_length(defaults.get(field)))
            for field, _ in derived.readers
        }
        return st.fixed_dictionaries(fields).map(converter.make)


def fixed_length(default):
    """Return the length of a default that is a filled list: ttnn's arrays do not grow."""
    return len(default) if isinstance(default, list) and default else None


def alternatives(annotation):
    """Return the types of a union that Python knows, None apart."""
    parts = [part.strip() for part in re.split(r"\|(?![^\[]*\])", annotation)]
    return [part for part in parts if part != "None" and "::" not in part]


def item_type(annotation):
    """Return the type of a sequence's items, or None for what is no sequence."""
    found = re.fullmatch(r"(?:collections\.abc\.Sequence|list)\[(.*)\]", annotation)
    return found[1] if found else None


def same(one, other):
    """Tell plain values and symbols that are equal; other objects count as different."""
    plain = (bool, int, float, str, list, Path, enum.Enum, type(None))
    return isinstance(one, plain) and isinstance(other, plain) and one == other


def _grid(ttnn, *corners):
    return ttnn.CoreRangeSet(
        [
            ttnn.CoreRange(ttnn.CoreCoord(x, y), ttnn.CoreCoord(to_x, to_y))
            for x, y, to_x, to_y in corners
        ]
    )


def _grids(ttnn, _):
    return [_grid(ttnn, (4, 0, 5, 1), (0, 0, 1, 3)), _grid(ttnn, (0, 0, 2, 2))]


def _shard_specs(ttnn, _):
    orientation = ttnn.ShardOrientation
    one, other = _grids(ttnn, _)
    return [
        ttnn.ShardSpec(one, [64, 32], orientation.COL_MAJOR),
        ttnn.ShardSpec(other, [32, 96], orientation.ROW_MAJOR),
    ]


def _memory(ttnn, samples):
    layouts, buffers = ttnn.TensorMemoryLayout, ttnn.BufferType
    one, other = _shard_specs(ttnn, samples)
    return [
        ttnn.MemoryConfig(layouts.HEIGHT_SHARDED, buffers.L1, one),
        ttnn.MemoryConfig(layouts.BLOCK_SHARDED, buffers.L1, other),
    ]


def _tensor_specs(ttnn, _):
    grid = _grid(ttnn, (0, 0, 0, 1))
    spec = ttnn.ShardSpec(grid, [32, 64], ttnn.ShardOrientation.COL_MAJOR)
    height = ttnn.TensorMemoryLayout.HEIGHT_SHARDED
    return [
        ttnn.TensorSpec(
            ttnn.Shape([1, 1, 64, 64]),
            ttnn.float32,
            ttnn.TILE_LAYOUT,
            height,
            spec,
            ttnn.BufferType.L1,
            ttnn.Tile([16, 32], True),
        ),
        ttnn.TensorSpec(ttnn.Shape([2, 5]), ttnn.int32, ttnn.ROW_MAJOR_LAYOUT),
    ]


def sharded_memories(ttnn):
    """Return memory configurations of nd shards, as given and as a tensor completes them."""
    grid = _grid(ttnn, (0, 0, 3, 1))
    specs = [ttnn.NdShardSpec(ttnn.Shape(s), grid) for s in ([32, 64], [2, 32, 64], [64])]
    given = [ttnn.MemoryConfig(ttnn.BufferType.L1, spec) for spec in specs]
    return [*given, *(spec.memory_config for spec in sharded_specs(ttnn))]


def sharded_specs(ttnn):
    """Return tensor specifications of every sharded layout, and of nd shards."""
    grid = _grid(ttnn, (0, 0, 3, 1))
    shards = ttnn.ShardSpec(grid, [32, 64], ttnn.ShardOrientation.ROW_MAJOR)
    shapes = {
        "HEIGHT_SHARDED": [256, 64],
        "WIDTH_SHARDED": [32, 512],
        "BLOCK_SHARDED": [2, 1, 32, 256],
    }
    common = (ttnn.bfloat16, ttnn.TILE_LAYOUT)
    l1 = ttnn.BufferType.L1
    return [
        *(
            ttnn.TensorSpec(ttnn.Shape(shape), *common, ttnn.TensorMemoryLayout[layout], shards, l1)
            for layout, shape in shapes.items()
        ),
        ttnn.TensorSpec(
            ttnn.Shape([64, 128]),
            *common,
            nd_shard_spec=ttnn.NdShardSpec(ttnn.Shape([32, 64]), grid),
            buffer_type=l1,
        ),
    ]


def _dispatch(ttnn, samples):
    make = samples.table.by_name["ttnn.DispatchCoreConfig"].make
    kinds, axes = ttnn.DispatchCoreType, ttnn.DispatchCoreAxis
    return [
        make({"type": kinds.ETH, "axis": axes.COL}),
        make({"type": kinds.WORKER, "axis": axes.ROW}),
    ]


SPECIAL = {
    "ttnn.CoreCoord": lambda ttnn, _: [ttnn.CoreCoord(7, 5), ttnn.CoreCoord(3, 4)],
    "ttnn.CoreRange": lambda ttnn, _: [r for grid in _grids(ttnn, _) for r in grid.ranges()],
    "ttnn.CoreRangeSet": _grids,
    "ttnn.DispatchCoreConfig": _dispatch,
    "ttnn.MemoryConfig": _memory,
    "ttnn.MeshCoordinate": lambda ttnn, _: [ttnn.MeshCoordinate(1, 2), ttnn.MeshCoordinate([3])],
    "ttnn.MeshCoordinateRange": lambda ttnn, _: [
        ttnn.MeshCoordinateRange(ttnn.MeshCoordinate(1, 2), ttnn.MeshCoordinate(3, 7)),
        ttnn.MeshCoordinateRange(ttnn.MeshShape(2, 4)),
    ],
    "ttnn.MeshShape": lambda ttnn, _: [ttnn.MeshShape(4, 8), ttnn.MeshShape([2, 3, 4])],
    "ttnn.PlacementShard": lambda ttnn, _: [ttnn.PlacementShard(-1), ttnn.PlacementShard(2)],
    "ttnn.Shape": lambda ttnn, _: [ttnn.Shape([2, 3, 4]), ttnn.Shape([1, 1, 32, 64])],
    "ttnn.ShardSpec": _shard_specs,
    "ttnn.SubDeviceId": lambda ttnn, _: [ttnn.SubDeviceId(3), ttnn.SubDeviceId(255)],
    "ttnn.TensorSpec": _tensor_specs,
    "ttnn.Tile": lambda ttnn, _: [ttnn.Tile([16, 32], True), ttnn.Tile([32, 16])],
    "ttnn.UnaryWithParam": lambda ttnn, _: [
        ttnn.UnaryWithParam(ttnn.UnaryOpType.GELU, 0.75),
        ttnn.UnaryWithParam(ttnn.UnaryOpType.RELU),
        ttnn.UnaryWithParam(ttnn.UnaryOpType.CLAMP_TSS, -1.5, 2.5),
    ],
    "ttnn.VectorUInt32": lambda ttnn, _: [_vector("VectorUInt32", ttnn, [4, 5])] * 2,
    "ttnn.VectorUnpackToDestMode": lambda ttnn, _: (
        [_vector("VectorUnpackToDestMode", ttnn, list(ttnn.UnpackToDestMode))] * 2
    ),
}


def _vector(name, ttnn, items):
    return getattr(ttnn._ttnn.program_descriptor, name)(items)


NUMBERS = st.integers(0, 60)
SCALAR_STRATEGIES = {
    "bool": st.booleans(),
    "int": st.integers(0, 200),
    "float": st.floats(width=32, allow_nan=False),
    "str": st.text("abc", max_size=4),
    "pathlib.Path": st.builds(Path, st.text("abc", min_size=1, max_size=4)),
}


def _core(ttnn, _):
    return st.builds(ttnn.CoreCoord, NUMBERS, NUMBERS)


def _range(ttnn, _):
    sides = st.integers(0, 3)
    return st.builds(
        lambda x, y, w, h: ttnn.CoreRange(ttnn.CoreCoord(x, y), ttnn.CoreCoord(x + w, y + h)),
        NUMBERS,
        NUMBERS,
        sides,
        sides,
    )


def _range_set(ttnn, _):
    """Give sets of single cores and of columns, in any order; ranges must not overlap."""
    columns = st.dictionaries(st.integers(0, 7), st.tuples(st.integers(0, 3), st.integers(0, 3)))
    return st.permutations(range(8)).flatmap(
        lambda order: columns.map(
            lambda found: _grid(
                ttnn, *((x, found[x][0], x, sum(found[x])) for x in order if x in found)
            )
        )
    )


def _shard_spec(ttnn, strategies):
    sides = st.integers(1, 512)
    shapes = st.lists(sides, min_size=2, max_size=2)
    orientations = st.sampled_from(list(ttnn.ShardOrientation))
    return st.builds(ttnn.ShardSpec, _range_set(ttnn, strategies), shapes, orientations)


def _memory_config(ttnn, strategies):
    layouts = [m for m in ttnn.TensorMemoryLayout if m.name not in ("ND_SHARDED", "INTERLEAVED")]
    buffers = st.sampled_from(list(ttnn.BufferType))
    interleaved = ttnn.TensorMemoryLayout.INTERLEAVED
    shards = st.none() | _shard_spec(ttnn, strategies)
    return st.one_of(
        st.builds(ttnn.MemoryConfig, st.just(interleaved), buffers),
        st.builds(ttnn.MemoryConfig, st.sampled_from(layouts), buffers, shards),
        st.builds(ttnn.MemoryConfig, buffers, strategies.of_class(ttnn.NdShardSpec)),
    )


def _row_of(cls_name, sizes, least, most):
    def build(ttnn, _):
        return st.lists(sizes, min_size=least, max_size=most).map(getattr(ttnn, cls_name))

    return build


def _activation(ttnn, _):
    # ttnn 0.78 does not tell infinite parameters; such objects are Opaque there.
    infinite = hasattr(ttnn.UnaryWithParam, "params")
    floats = st.floats(width=32, allow_nan=False, allow_infinity=infinite)
    numbers = st.lists(floats, max_size=2)
    return st.builds(
        lambda op, params: ttnn.UnaryWithParam(op, *params),
        st.sampled_from(list(ttnn.UnaryOpType)),
        numbers,
    )


BUILDERS = {
    "ttnn.CoreCoord": _core,
    "ttnn.CoreRange": _range,
    "ttnn.CoreRangeSet": _range_set,
    "ttnn.MemoryConfig": _memory_config,
    "ttnn.MeshCoordinate": _row_of("MeshCoordinate", st.integers(0, 40), 1, 4),
    "ttnn.MeshShape": _row_of("MeshShape", st.integers(1, 40), 1, 4),
    "ttnn.Shape": _row_of("Shape", st.integers(0, 2**20), 1, 6),
    "ttnn.ShardSpec": _shard_spec,
    "ttnn.SubDeviceId": lambda ttnn, _: st.builds(ttnn.SubDeviceId, st.integers(0, 255)),
    "ttnn.UnaryWithParam": _activation,
}
