"""Describing and building through converter tables, with a framework of pure Python."""

import pytest

import fakeframework as fake
from fakeframework import Device, Grid, Memory, Parameter, Program, Semaphore, Tensor
from faults import faults_of
from optrove.model.values import (
    DeviceRef,
    Handle,
    Int,
    List,
    NumpyPlacement,
    Opaque,
    Struct,
    Symbol,
    TensorSpec,
    Text,
    Tuple,
)
from optrove.serializer import plain
from optrove.serializer.build import build
from optrove.serializer.describe import Describer, DescriptionCache, describe
from optrove.serializer.tables import ConverterTable, StructConverter, Tables


@pytest.fixture
def tables():
    return Tables([plain.table(), fake.table()])


def test_a_struct_comes_apart_and_back(tables):
    memory = Memory("dram", [Grid(1, 2), Memory("l1", (3,))])
    value = describe(memory, tables)
    assert value.type == "fake.Memory"
    assert dict(value.fields)["shards"].items[0] == Struct(
        "fake.Grid", (("x", Int(1)), ("y", Int(2)))
    )
    assert build(value, tables) == memory


def test_symbols_come_back_as_the_same_object(tables):
    assert describe(fake.TILE, tables) == Symbol("fake.Layout", "TILE")
    assert build(Symbol("fake.Layout", "ROW"), tables) is fake.ROW


def test_tensors_are_numbered_by_identity_within_a_session(tables):
    session = Describer(tables)
    first, second = Tensor((1, 2)), Tensor((1, 2))
    numbers = [part.identity for part in session.describe([first, second, first]).items]
    assert numbers == [0, 1, 0]
    assert session.describe(second).identity == 1
    assert Describer(tables).describe(second).identity == 0


def test_a_tensor_that_died_does_not_lend_its_number(tables):
    session = Describer(tables)
    assert [session.describe(Tensor((1,))).identity for _ in range(20)] == list(range(20))


def test_handles_are_numbered_apart_from_tensors(tables):
    session = Describer(tables)
    session.describe(Tensor((1,)))
    assert session.describe(Semaphore()).identity == 0


def test_subclasses_count_where_the_converter_says_so(tables):
    assert describe(Parameter((3,)), tables) == TensorSpec((3,), "fake.int8", NumpyPlacement(()))

    class Special(Memory):
        pass

    assert isinstance(describe(Special("dram"), tables), Opaque)


def test_the_memory_of_a_tensor_is_described_too(tables):
    value = describe(Tensor((1,), Memory("dram")), tables)
    assert value.placement.memory.type == "fake.Memory"
    assert build(value, tables) == value


def test_a_device_is_replaced_by_the_one_given(tables):
    value = describe([Device()], tables)
    assert value == List((DeviceRef("fake.Device", (2, 4)),))
    device = Device()
    assert build(value, tables, device)[0] is device
    assert build(value, tables)[0] == DeviceRef("fake.Device", (2, 4))


def test_a_handle_is_made_once_for_each_number(tables):
    shared, other = Semaphore(5), Semaphore(6)
    value = describe([shared, other, shared], tables)
    first, second, third = build(value, tables, Device())
    assert first is third
    assert first is not second
    assert (first.start, second.start) == (5, 6)


def test_a_handle_stays_as_it_is_without_a_device(tables):
    value = describe(Semaphore(5), tables)
    assert build(value, tables) == value


def test_a_lookup_can_supply_the_recipe_of_a_handle(tables):
    session = Describer(tables, recipes=lambda live: {"start": 9})
    value = session.describe(Semaphore())
    assert value == Handle("fake.Semaphore", Struct("fake.Semaphore", (("start", Int(9)),)))
    assert build(value, tables, Device()).start == 9


def test_a_handle_that_cannot_be_made_is_a_fault(tables):
    wrong = Struct("fake.Memory", (("start", Int(1)),))
    partial = Struct("fake.Semaphore", ())
    value = List(
        (
            Handle("fake.Semaphore", None, 0),
            Handle("fake.Semaphore", wrong, 1),
            Handle("fake.Semaphore", partial, 2),
            Handle("fake.Memory", None, 3),
        )
    )
    found = faults_of(build, value, tables, Device())
    assert list(found) == ["$[0]", "$[1].recipe", "$[2].recipe", "$[3]"]


def test_one_number_cannot_stand_for_two_recipes(tables):
    recipes = [Struct("fake.Semaphore", (("start", Int(start)),)) for start in (1, 2)]
    value = List(tuple(Handle("fake.Semaphore", recipe, 0) for recipe in recipes))
    assert "another recipe" in faults_of(build, value, tables, Device())["$[1]"]


def test_an_object_whose_converter_fails_is_opaque(tables):
    value = describe(fake.Broken(), tables)
    assert isinstance(value, Opaque)
    assert value.type == "fakeframework.Broken"


def test_live_objects_are_never_compared_or_printed(tables):
    session = Describer(tables, cache=DescriptionCache())
    objects = [Tensor((1,)), Parameter((1,)), Device(), Semaphore(), fake.ROW, fake.Touchy()]
    value = session.describe([objects, tuple(objects), {"key": objects, objects[0]: 1}])
    assert not isinstance(value, Opaque)
    assert isinstance(value.items[0].items[-1], Opaque)


def test_all_faults_of_a_build_are_named(tables):
    value = Tuple(
        (
            Struct("fake.Memory", (("kind", Text("dram")),)),
            Struct("fake.Memory", (("kind", Int(1)), ("shards", List(())))),
            Struct("fake.Mermory", ()),
            Symbol("fake.Layout", "TILES"),
            Symbol("fake.Memory", "x"),
            Struct("fake.Layout", ()),
            Opaque("some.Type", "token"),
        )
    )
    found = faults_of(build, value, tables)
    assert list(found) == [f"$.$tuple[{index}]" for index in range(7)]
    assert "shards" in found["$.$tuple[0]"]
    assert "kind must be a string" in found["$.$tuple[1]"]
    assert "close to it: fake.Memory" in found["$.$tuple[2]"]
    assert "TILE" in found["$.$tuple[3]"]
    assert "some.Type" in found["$.$tuple[6]"]


def test_values_of_an_absent_framework_stay_but_are_checked():
    tables = Tables([plain.table()], absent=("fake",))
    inert = Struct("fake.Memory", (("kind", Symbol("fake.Kind", "A")),))
    assert build(inert, tables) is inert
    hiding = Struct("fake.Memory", (("kind", List((Opaque("some.Type", "1"),))),))
    assert list(faults_of(build, hiding, tables)) == ["$.fields.kind[0]"]


def test_names_and_classes_are_registered_once():
    grid, memory = (
        StructConverter(name, kind, dict, dict)
        for name, kind in (("fake.Grid", Grid), ("fake.Memory", Memory))
    )
    same_name = StructConverter("fake.Grid", Memory, dict, dict)
    same_class = StructConverter("fake.Other", Grid, dict, dict)
    with pytest.raises(ValueError, match=r"two converters are called 'fake\.Grid'"):
        ConverterTable("fake", [grid, same_name])
    with pytest.raises(ValueError, match="has two converters"):
        ConverterTable("fake", [grid, same_class])
    with pytest.raises(ValueError, match="has two converters"):
        Tables([ConverterTable("fake", [grid, memory]), ConverterTable("fake", [same_class])])
    with pytest.raises(ValueError, match="in the table of 'other'"):
        ConverterTable("other", [grid])


def test_immutable_configurations_are_read_once(tables):
    cache = DescriptionCache()
    program = Program(Grid(1, 1))
    Grid.reads = Program.reads = 0
    values = [Describer(tables, cache=cache).describe([Grid(3, 4), program]) for _ in range(5)]
    assert (Grid.reads, Program.reads) == (2, 1)
    assert all(value == values[0] for value in values)


def test_configurations_that_differ_are_distinguished_by_the_cache(tables):
    cache = DescriptionCache()
    found = [Describer(tables, cache=cache).describe(Grid(x, 1)) for x in (1, 2, 1)]
    assert found[0] == found[2] != found[1]
    programs = [Describer(tables, cache=cache).describe(Program(Grid(x, 1))) for x in range(50)]
    assert len(set(programs)) == 50


def test_mutable_configurations_are_described_each_time(tables):
    cache = DescriptionCache()
    memory = Memory("dram")
    before = Describer(tables, cache=cache).describe(memory)
    memory.kind = "l1"
    assert Describer(tables, cache=cache).describe(memory) != before


def test_what_holds_a_tensor_or_an_unknown_is_not_cached(tables):
    cache = DescriptionCache()
    program = Program(object())
    found = {Describer(tables, cache=cache).describe(program) for _ in range(3)}
    assert len(found) == 3
    session = Describer(tables, cache=cache)
    session.describe(Program(Tensor((1,))))
    assert session.describe(Program(Tensor((1,)))).fields[0][1].identity == 1


def test_the_cache_is_bounded(tables):
    cache = DescriptionCache(limit=8)
    for x in range(100):
        Describer(tables, cache=cache).describe(Grid(x, x))
    assert len(cache._entries) <= 8
