"""A framework of pure Python classes, with converters of every kind, for tests of the tables."""

from __future__ import annotations

from optrove.model.values import NumpyPlacement, Struct, TensorSpec, TtnnPlacement
from optrove.serializer.tables import (
    CallableConverter,
    ConverterTable,
    DeviceConverter,
    HandleConverter,
    StructConverter,
    SymbolConverter,
    TensorConverter,
)


class Touchy:
    """An object that must not be compared, printed or formatted."""

    def __eq__(self, other):
        raise AssertionError("a live object was compared")

    __ne__ = __lt__ = __eq__
    __hash__ = object.__hash__

    def __repr__(self):
        raise AssertionError("a live object was printed")

    __str__ = __format__ = __bool__ = __len__ = __repr__


class Tensor(Touchy):
    def __init__(self, shape, memory=None, buffer=None, device=None):
        self.shape = shape
        self.memory = memory
        self.buffer = object() if buffer is None else buffer
        self.device = device


class Parameter(Tensor):
    pass


class Device(Touchy):
    def __init__(self, number=None):
        self.number = number


class Semaphore(Touchy):
    def __init__(self, start=None):
        self.start = start


class Generator(Touchy):
    def __init__(self, seed):
        self.seed = seed


class Operation(Touchy):
    def __init__(self, name):
        self.name = name


ADD = Operation("add")


class Layout(Touchy):
    def __init__(self, number):
        self.number = number


ROW, TILE = Layout(0), Layout(1)


class Memory:
    """A configuration that can change and cannot be hashed."""

    def __init__(self, kind, shards=()):
        self.kind = kind
        self.shards = shards

    def __eq__(self, other):
        return (self.kind, self.shards) == (other.kind, other.shards)

    __hash__ = None


class Grid:
    """A configuration that never changes and is compared by value."""

    reads = 0

    def __init__(self, x, y):
        self.x = x
        self.y = y

    def __eq__(self, other):
        return type(other) is Grid and (self.x, self.y) == (other.x, other.y)

    def __hash__(self):
        return hash((self.x, self.y))


class Program:
    """A configuration that never changes and is known by identity only."""

    reads = 0

    def __init__(self, grid):
        self.grid = grid


class Padded:
    """A configuration with a default, which keeps its size in eight bits."""

    def __init__(self, size, padding=7):
        self.size = size % 256
        self.padding = padding


class Recording:
    """A configuration that tells what was made."""

    made = []  # noqa: RUF012 - shared by all of them, on purpose

    def __init__(self, content):
        self.content = content
        self.made.append(content)


class Broken:
    """An object whose converter fails."""


def _memory_fields(live):
    return {"kind": live.kind, "shards": live.shards}


def _make_memory(fields):
    if not isinstance(fields["kind"], str):
        raise TypeError("kind must be a string")
    return Memory(fields["kind"], fields["shards"])


def _grid_fields(live):
    Grid.reads += 1
    return {"x": live.x, "y": live.y}


def _program_fields(live):
    Program.reads += 1
    return {"grid": live.grid}


def _broken_fields(live):
    raise RuntimeError("this object was deallocated")


def _operation_name(live):
    if live.name is None:
        raise LookupError("an operation without a name")
    return f"fake.{live.name}"


def _spec(live, describing, identity, storage):
    if live.device is not None:
        placement = TtnnPlacement(
            *(live.shape, "ROW", None, "DEVICE", None, (2, 4), None),
            device=describing.device_number(live.device),
        )
        return TensorSpec(live.shape, "fake.int8", placement, identity, storage)
    if live.memory is None:
        return TensorSpec(live.shape, "fake.int8", NumpyPlacement(()), identity, storage)
    memory = describing.describe(live.memory)
    assert isinstance(memory, Struct)
    placement = TtnnPlacement(live.shape, "ROW", None, "HOST", memory, None, None)
    return TensorSpec(live.shape, "fake.int8", placement, identity, storage)


def converters():
    """Return one converter for each class above."""
    return [
        StructConverter("fake.Memory", Memory, _memory_fields, _make_memory, ("kind", "shards")),
        StructConverter(
            *("fake.Grid", Grid, _grid_fields, lambda fields: Grid(**fields), ("x", "y")),
            cacheable=True,
        ),
        StructConverter(
            *("fake.Program", Program, _program_fields, lambda fields: Program(**fields)),
            cacheable=True,
        ),
        StructConverter("fake.Broken", Broken, _broken_fields, lambda fields: Broken()),
        SymbolConverter(
            *("fake.Layout", Layout, {"ROW": ROW, "TILE": TILE}),
            name_of=lambda live: ("ROW", "TILE")[live.number],
        ),
        StructConverter(
            *("fake.Padded", Padded, vars, lambda fields: Padded(**fields)),
        ),
        StructConverter(
            *("fake.Recording", Recording, vars, lambda fields: Recording(**fields)),
        ),
        TensorConverter(
            *("fake.Tensor", Tensor, _spec),
            subclasses=True,
            storage=lambda live: id(live.buffer),
        ),
        DeviceConverter(
            *("fake.Device", Device, lambda live: (2, 4)),
            key=lambda live: id(live) if live.number is None else -live.number,
        ),
        CallableConverter("fake.Operation", Operation, _operation_name),
        HandleConverter(
            *("fake.Generator", Generator, lambda fields, device: Generator(fields["seed"])),
            recipe=lambda live: {"seed": live.seed},
            names=("seed",),
            needs_device=False,
        ),
        HandleConverter(
            *("fake.Semaphore", Semaphore, lambda fields, device: Semaphore(fields["start"])),
            recipe=lambda live: None if live.start is None else {"start": live.start},
            names=("start",),
        ),
    ]


def table():
    """Return the table of the fake framework."""
    return ConverterTable("fake", converters())
