"""Describing never raises, never merges two different things, and keeps nothing alive."""

import abc
import collections
import dataclasses
import enum
import functools
import gc
import sys
import types
import typing
import weakref
from collections.abc import Mapping as AbstractMapping

import pytest

import fakeframework as fake
from fakeframework import Device, Program, Semaphore, Tensor
from optrove.model.values import (
    MAX_DEPTH,
    Bool,
    Bytes,
    Callable,
    DeviceRef,
    Handle,
    Int,
    List,
    Mapping,
    Null,
    NumpyPlacement,
    Opaque,
    Struct,
    TensorSpec,
    Text,
    Tuple,
    walk,
)
from optrove.runconfig.jsonable import to_jsonable
from optrove.serializer import plain
from optrove.serializer.describe import Describer, DescriptionCache, describe
from optrove.serializer.tables import Tables
from optrove.serializer.wire import decode, encode


@pytest.fixture
def tables():
    return Tables([plain.table(), fake.table()])


class Unforeseen(Exception):
    """An exception of a kind that nobody expects."""


class Unhashable(type):
    __hash__ = None

    def __eq__(cls, other):
        raise Unforeseen


class Unreadable(type):
    def __getattribute__(cls, name):
        raise Unforeseen(name)


class Nowhere(type):
    @property
    def __module__(cls):
        raise Unforeseen


@dataclasses.dataclass
class Refusing:
    size: int

    def __getattribute__(self, name):
        raise Unforeseen(name)


@pytest.mark.parametrize("metaclass", [Unhashable, Unreadable, Nowhere])
def test_an_object_of_a_hostile_class_is_opaque(metaclass, tables):
    hostile = metaclass("Hostile", (), {"__module__": "m"})
    value = describe([hostile()], tables).items[0]
    assert isinstance(value, Opaque)
    assert value.type == "m.Hostile"
    assert decode(encode(value)) == value


@pytest.mark.parametrize("metaclass", [Unhashable, Unreadable, Nowhere])
def test_a_hostile_class_itself_is_described_too(metaclass, tables):
    value = describe(metaclass("Hostile", (), {}), tables)
    assert isinstance(value, Opaque)
    assert decode(encode(value)) == value


def test_an_object_that_raises_whatever_it_likes_is_opaque(tables):
    assert isinstance(describe(Refusing(1), tables), Opaque)


def test_a_stop_asked_for_by_the_user_passes_through(tables):
    class Stopping(Tensor):
        def __getattribute__(self, name):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        describe(object.__new__(Stopping), tables)


@pytest.mark.parametrize(
    "value",
    [
        Int("a"),
        Int(True),
        Bool(1),
        Text(3),
        Bytes("a"),
        List(5),
        List([Int(1)]),
        List((1,)),
        Mapping(frozenset({(Text("a"), Int(1)), (Text("a"), Int(2))})),
        Struct("s", (("a", object()),)),
        TensorSpec((object(),), "d", NumpyPlacement(())),
        DeviceRef("d", "12"),
        Handle("h", Null()),
        Int(1 << 5000),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_is_not_well_formed_is_opaque(value, tables):
    found = describe([value], tables)
    assert isinstance(found.items[0], Opaque)
    assert decode(encode(found)) == found


@pytest.mark.parametrize("levels", [0, 1, 2])
def test_a_value_within_objects_counts_its_own_depth(levels, tables):
    value = Null()
    for _ in range(MAX_DEPTH - 1):
        value = List((value,))
    live = value
    for _ in range(levels):
        live = [live]
    found = describe(live, tables)
    assert decode(encode(found)) == found
    assert any(isinstance(part, Opaque) for _, part in walk(found)) == (levels > 1)


@pytest.mark.parametrize("levels", range(MAX_DEPTH - 4, MAX_DEPTH + 2))
@pytest.mark.parametrize("start", [1, [Semaphore(2)]])
def test_a_handle_can_be_read_again_however_deep_it_was(levels, start, tables):
    live = Semaphore(start)
    for _ in range(levels):
        live = [live]
    value = describe(live, tables)
    assert decode(encode(value)) == value


def test_a_member_without_a_readable_name_is_opaque(tables):
    kind = enum.Enum("Unreadable", {"\ud800": 1}, module=__name__)
    value = describe(next(iter(kind)), tables)
    assert isinstance(value, Opaque)
    encode(value)


def test_views_share_the_number_of_their_buffer(tables):
    whole = Tensor((4,))
    view, other = Tensor((2,), buffer=whole.buffer), Tensor((4,))
    session = Describer(tables)
    found = session.describe([other, whole, view, whole]).items
    assert [part.identity for part in found] == [0, 1, 2, 1]
    assert [part.storage for part in found] == [0, 1, 1, 1]
    assert session.describe(view).storage == 1


def test_devices_are_numbered_and_tensors_refer_to_that_number(tables):
    first, second = Device(), Device()
    arguments = [Tensor((1,), device=second), first, second, Tensor((1,), device=first)]
    one, two, three, four = describe(arguments, tables).items
    assert (one.placement.device, two.identity, three.identity, four.placement.device) == (
        *(0, 1, 0),
        1,
    )
    assert describe([first, second], tables) != describe([first, first], tables)


def test_two_objects_for_one_device_have_one_number(tables):
    first, again = Device(number=3), Device(number=3)
    assert [part.identity for part in describe([first, again], tables).items] == [0, 0]


def test_what_holds_a_device_is_not_cached(tables):
    cache = DescriptionCache()
    first, second = Program(Device()), Program(Device())
    Describer(tables, cache=cache).describe(second)
    value = Describer(tables, cache=cache).describe([first, second])
    assert [part.fields[0][1].identity for part in value.items] == [0, 1]


def test_functions_of_a_framework_are_recorded_by_their_public_name(tables):
    assert describe(fake.ADD, tables) == Callable("fake.add")
    assert isinstance(describe(fake.Operation(None), tables), Opaque)


def original():
    """Stand for any function."""


@functools.wraps(original)
def wrapper():
    """Look like the original."""


class Holder:
    class Inner:
        pass

    def method(self):
        pass

    @staticmethod
    def static():
        pass


def test_a_function_that_only_looks_like_another_is_opaque(tables):
    assert describe(original, tables) == Callable(f"{__name__}:original")
    assert isinstance(describe(wrapper, tables), Opaque)


def test_functions_and_classes_within_classes_are_found(tables):
    assert describe(Holder.Inner, tables) == Callable(f"{__name__}:Holder.Inner")
    assert describe(Holder.method, tables) == Callable(f"{__name__}:Holder.method")
    assert describe(Holder.static, tables) == Callable(f"{__name__}:Holder.static")


def test_a_function_of_a_module_that_is_gone_is_opaque(tables):
    module = types.ModuleType("soon_gone")
    function = types.FunctionType(original.__code__, vars(module), "original")
    assert function.__module__ is None or isinstance(describe(function, tables), Opaque)
    assert isinstance(describe(function, tables), Opaque)


@dataclasses.dataclass
class Config:
    size: int = 1


Colour = enum.Enum("Colour", "RED", module=__name__)
Point = collections.namedtuple("Point", "x")
FIRST = {"Config": Config, "Colour": Colour, "Point": Point}


def doubles():
    config = dataclasses.make_dataclass("Config", [("size", int, 1)])
    config.__module__ = __name__
    colour = enum.Enum("Colour", "RED", module=__name__)
    point = collections.namedtuple("Point", "x", module=__name__)
    return {"Config": config, "Colour": colour, "Point": point}


def one_of(kind):
    return next(iter(kind)) if issubclass(kind, enum.Enum) else kind(*[1] * (kind is not Config))


@pytest.mark.parametrize("name", FIRST)
def test_of_two_classes_with_one_name_only_the_one_found_there_is_known(name, tables):
    assert not isinstance(describe(one_of(FIRST[name]), tables), Opaque)
    assert isinstance(describe(one_of(doubles()[name]), tables), Opaque)


def test_a_class_that_was_redefined_takes_over_the_name(tables, monkeypatch):
    old = Config()
    assert not isinstance(describe(old, tables), Opaque)
    new = doubles()["Config"]
    monkeypatch.setattr(sys.modules[__name__], "Config", new)
    assert isinstance(describe(old, tables), Opaque)
    assert not isinstance(describe(new(), tables), Opaque)


@dataclasses.dataclass
class Queue(collections.deque):
    size: int = 0


@dataclasses.dataclass
class Failure(Exception):
    code: int = 0


class Stateful:
    def __init__(self):
        self.hidden = object()


class Slotted:
    __slots__ = ("hidden",)


@dataclasses.dataclass
class OnStateful(Stateful):
    size: int = 0


@dataclasses.dataclass
class OnSlotted(Slotted):
    size: int = 0


@dataclasses.dataclass
class OnConfigOnStateful(OnStateful):
    other: int = 0


@pytest.mark.parametrize("kind", [Queue, Failure, OnStateful, OnSlotted, OnConfigOnStateful])
def test_a_dataclass_whose_base_has_a_state_of_its_own_is_opaque(kind, tables):
    assert isinstance(describe(kind(), tables), Opaque)


T = typing.TypeVar("T")


class Sized(typing.Protocol):
    size: int


class Unpacking:
    def keys(self):
        return [field.name for field in dataclasses.fields(self)]

    def __getitem__(self, name):
        return getattr(self, name)


@dataclasses.dataclass
class OnUnpacking(Unpacking):
    size: int = 0


@dataclasses.dataclass
class OnConfig(Config):
    other: int = 0


@dataclasses.dataclass
class OnGeneric(abc.ABC, typing.Generic[T]):
    size: int = 0


@dataclasses.dataclass
class OnProtocol(Sized):
    size: int = 0


@dataclasses.dataclass
class OnMapping(AbstractMapping):
    size: int = 0

    def __getitem__(self, name):
        return self.size

    def __iter__(self):
        return iter(["size"])

    def __len__(self):
        return 1


@pytest.mark.parametrize("kind", [OnUnpacking, OnConfig, OnGeneric, OnProtocol, OnMapping])
def test_a_dataclass_whose_bases_have_no_state_is_known(kind, tables):
    assert isinstance(describe(kind(), tables), Struct)


@pytest.mark.parametrize("make", [*("Config", "Colour", "Point"), "Plain"])
def test_describing_keeps_no_class_alive(make, monkeypatch):
    kind = type("Plain", (), {}) if make == "Plain" else doubles()[make]
    # Found by its name, so that all that is known about it is worked out.
    monkeypatch.setattr(sys.modules[__name__], make, kind, raising=False)
    for _ in range(2):
        to_jsonable(kind() if make == "Plain" else one_of(kind))
    death = weakref.ref(kind)
    monkeypatch.undo()
    del kind
    gc.collect()
    assert death() is None


def test_what_is_in_a_tuple_stays_in_order(tables):
    assert describe((1, [2]), tables) == Tuple((Int(1), List((Int(2),))))
