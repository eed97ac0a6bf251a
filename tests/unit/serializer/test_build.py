"""Building gives the recorded object or says why not, whatever the classes do."""

import collections
import dataclasses
import enum
import json
from collections import OrderedDict
from typing import NamedTuple

import pytest

import fakeframework as fake
from fakeframework import Device, Grid
from faults import faults_of
from optrove.model.values import Callable, DeviceRef, Handle, Int, List, Struct, Symbol, Text
from optrove.runconfig.jsonable import from_jsonable, to_jsonable
from optrove.serializer import plain
from optrove.serializer.build import build
from optrove.serializer.tables import Tables
from optrove.serializer.wire import MAX_FAULTS


@pytest.fixture
def tables():
    return Tables([plain.table(), fake.table()])


class Unforeseen(Exception):
    def __str__(self):
        raise OSError("no words for it")


@dataclasses.dataclass
class Refusing:
    size: int

    def __post_init__(self):
        if self.size < 0:
            raise Unforeseen


@dataclasses.dataclass(frozen=True)
class Unhashable:
    size: int

    def __hash__(self):
        raise Unforeseen


@dataclasses.dataclass
class Doubling:
    size: int

    def __post_init__(self):
        self.size *= 2


class Shifting(collections.namedtuple("Shifting", "left right")):
    def __new__(cls, left, right):
        return super().__new__(cls, left + 1, right)


@dataclasses.dataclass
class Outer:
    inner: object
    sizes: list

    def __post_init__(self):
        self.sizes.append(0)


@dataclasses.dataclass(frozen=True)
class Frozen:
    items: object


class Named(NamedTuple):
    items: object


class Colour(enum.Enum):
    RED = 1
    CRIMSON = 1  # noqa: PIE796 - an alias, on purpose


def as_struct(kind, **fields):
    return {"$struct": f"python.dataclass:{__name__}:{kind.__name__}", "fields": fields}


def test_a_class_may_raise_whatever_it_likes():
    data = [as_struct(Refusing, size=-1), as_struct(Refusing, size=1)]
    assert "Unforeseen" in faults_of(from_jsonable, data, types=[Refusing])["$[0]"]


def test_a_key_may_raise_whatever_it_likes():
    data = {"$map": [[as_struct(Unhashable, size=1), 2]]}
    assert "Unforeseen" in faults_of(from_jsonable, data, types=[Unhashable])["$.$map[0][0]"]
    data = {"$set": [as_struct(Unhashable, size=1)]}
    assert "$.$set[0]" in faults_of(from_jsonable, data, types=[Unhashable])


@pytest.mark.parametrize(
    ("live", "path"),
    [
        (Doubling(3), "$.fields.size"),
        ([1, Doubling(3)], "$[1].fields.size"),
        ({"a": Doubling(3)}, "$.a.fields.size"),
        ({1: Doubling(3)}, "$.$map[0][1].fields.size"),
        (Shifting(1, 2), "$.fields.left"),
        (Outer(Doubling(0), []), "$.fields.sizes"),
        ((Frozen(Doubling(3)),), "$.$tuple[0].fields.items.fields.size"),
    ],
    ids=lambda part: "" if isinstance(part, str) else type(part).__name__,
)
def test_a_class_that_changes_what_it_is_given_is_a_fault(live, path):
    data = json.loads(json.dumps(to_jsonable(live)))
    types = [Doubling, Shifting, Outer, Frozen]
    assert list(faults_of(from_jsonable, data, types=types)) == [path]


def test_a_change_is_reported_with_both_values():
    problem = faults_of(from_jsonable, to_jsonable(Doubling(3)), types=[Doubling])["$.fields.size"]
    assert "6" in problem
    assert "12" in problem


def test_a_class_that_changes_nothing_comes_back():
    assert from_jsonable(to_jsonable(Doubling(0)), types=[Doubling]) == Doubling(0)


def test_fields_that_the_data_leaves_out_may_take_any_value(tables):
    value = Struct("fake.Padded", (("size", Int(3)),))
    assert build(value, tables).padding == 7
    value = Struct("fake.Padded", (("size", Int(3)), ("padding", Int(8))))
    assert build(value, tables).padding == 8
    assert list(faults_of(build, Struct("fake.Padded", (("size", Int(300)),)), tables)) == [
        "$.fields.size"
    ]


def test_another_name_of_a_member_is_the_same_member():
    data = as_struct(Frozen, items={"$symbol": f"python.enum:{__name__}:Colour", "name": "CRIMSON"})
    assert from_jsonable(data, types=[Frozen, Colour]) == Frozen(Colour.RED)


def test_devices_and_handles_within_a_class_are_those_of_the_caller(tables):
    device = Device()
    recipe = Struct("fake.Semaphore", (("start", Int(1)),))
    grid = List((DeviceRef("fake.Device", (9, 9), 4), Handle("fake.Semaphore", recipe, 5)))
    live = build(Struct("fake.Program", (("grid", grid),)), tables, device)
    assert live.grid[0] is device
    assert live.grid[1].start == 1


def test_one_device_does_not_stand_for_two(tables):
    value = List(tuple(DeviceRef("fake.Device", (1, 2), number) for number in (0, 1, 0)))
    found = faults_of(build, value, tables, Device())
    assert list(found) == ["$[1]"]
    assert "mesh_device" in found["$[1]"]
    assert build(value, tables) == list(value.items)


def test_a_handle_that_needs_no_device_is_made_without_one(tables):
    recipe = Struct("fake.Generator", (("seed", Int(3)),))
    first, second = build(List((Handle("fake.Generator", recipe),) * 2), tables)
    assert first is second
    assert first.seed == 3


def test_a_function_of_a_framework_stays_a_name(tables):
    assert build(Callable("fake.add"), tables) == Callable("fake.add")
    assert "$" in faults_of(build, Struct("fake.Operation", ()), tables)
    assert "$" in faults_of(build, Symbol("fake.Operation", "add"), tables)


@pytest.mark.parametrize(
    "key",
    [
        frozenset({1}),
        (frozenset({1}),),
        Frozen(frozenset({1, frozenset()})),
        Named((1, frozenset({2}))),
        Frozen(Named(frozenset({Frozen(frozenset())}))),
    ],
    ids=lambda key: type(key).__name__,
)
@pytest.mark.parametrize("wrap", [dict, OrderedDict, lambda pairs: {key for key, _ in pairs}])
def test_keys_that_hold_frozen_sets_come_back(key, wrap):
    live = wrap([(key, {2})])
    again = from_jsonable(json.loads(json.dumps(to_jsonable(live))), types=[Frozen, Named])
    assert again == live
    assert type(again) is type(live)


@pytest.mark.parametrize("live", [set(), {1}, frozenset(), frozenset({1}), [frozenset({1}), {1}]])
def test_sets_and_frozen_sets_are_distinguished(live):
    again = from_jsonable(to_jsonable(live))
    assert again == live
    assert type(again) is type(live)
    if isinstance(live, list):
        assert [type(item) for item in again] == [frozenset, set]


@pytest.mark.parametrize(
    "entries",
    [
        ["ab"],
        [["a", 1]],
        [{"$tuple": ["a"]}],
        [{"$tuple": ["a", 1]}, {"$tuple": ["a", 2]}],
        [{"$tuple": [[], 1]}],
        {"a": 1},
        "ab",
        None,
    ],
)
def test_the_entries_of_an_ordered_dict_are_pairs_with_keys_of_their_own(entries):
    data = {"$struct": "python.OrderedDict", "fields": {"entries": entries}}
    assert "$" in faults_of(from_jsonable, data)


def test_faults_are_listed_up_to_a_limit(tables):
    value = List(tuple(Struct(f"fake.Grid{number}", ()) for number in range(2 * MAX_FAULTS)))
    found = faults_of(build, value, tables)
    assert len(found) == MAX_FAULTS + 1
    assert "the rest is not listed" in found["$"]
    assert "close to it: fake.Grid" in found["$[0]"]
    assert "close to it" not in found[f"$[{MAX_FAULTS - 1}]"]


def test_nothing_is_made_of_what_could_not_be_read(tables):
    broken = List(tuple(Struct("fake.Nope", ()) for _ in range(MAX_FAULTS)))
    grid = Struct("fake.Recording", (("content", Struct("fake.Nope", ())),))
    fake.Recording.made.clear()
    faults_of(build, List((broken, grid)), tables)
    assert fake.Recording.made == []


def test_a_long_name_gives_a_short_message(tables):
    value = List((Struct("fake." + "x" * 1_000_000, ()), Symbol("fake.Layout", "y" * 1_000_000)))
    assert all(len(problem) < 400 for problem in faults_of(build, value, tables).values())


def test_a_struct_of_scalars_is_compared_by_their_kind(tables):
    assert build(Struct("fake.Grid", (("x", Int(1)), ("y", Int(2)))), tables) == Grid(1, 2)
    value = Struct("fake.Grid", (("x", Text("1")), ("y", Int(2))))
    assert build(value, tables).x == "1"
