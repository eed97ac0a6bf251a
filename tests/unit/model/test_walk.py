from optrove.model.values import (
    FrozenSet,
    Handle,
    Int,
    List,
    Mapping,
    Null,
    Set,
    Struct,
    TensorSpec,
    Text,
    TtnnPlacement,
    Tuple,
    key_step,
    walk,
)


def test_paths_are_those_of_the_json_form():
    memory = Struct("ttnn.MemoryConfig", (("shard", Null()),))
    placement = TtnnPlacement((1,), "TILE", None, "DEVICE", memory, None, None)
    value = List(
        (
            Tuple((Int(1),)),
            Struct("s", (("odd name", Int(2)),)),
            Mapping(frozenset({(Text("key"), Int(3))})),
            Mapping(frozenset({(Int(4), Int(5))})),
            Set(frozenset({Int(6)})),
            TensorSpec((1,), "ttnn.bfloat16", placement),
            Handle("h", memory),
            FrozenSet(frozenset({Int(7)})),
        )
    )
    found = {path: part for path, part in walk(value) if isinstance(part, (Int, Null))}
    assert found == {
        "$[0].$tuple[0]": Int(1),
        '$[1].fields["odd name"]': Int(2),
        "$[2].key": Int(3),
        "$[3].$map[*][0]": Int(4),
        "$[3].$map[*][1]": Int(5),
        "$[4].$set[*]": Int(6),
        "$[5].$tensor.placement.memory.fields.shard": Null(),
        "$[6].recipe.fields.shard": Null(),
        "$[7].$frozenset[*]": Int(7),
    }


def test_parts_come_in_reading_order():
    value = List((List((Int(1), Int(2))), Int(3)))
    assert [part for _, part in walk(value) if isinstance(part, Int)] == [Int(1), Int(2), Int(3)]


def test_nesting_does_not_exhaust_the_stack():
    value = Int(0)
    for _ in range(20_000):
        value = List((value,))
    assert sum(1 for _ in walk(value)) == 20_001
    while isinstance(value, List):  # taken apart here, since Python would recurse to free it
        (value,) = value.items


def test_a_path_can_always_be_printed():
    assert key_step("\ud800") == '["\\ud800"]'
