import pytest

from optrove.errors import BadData
from optrove.model.values import (
    MAX_DEPTH,
    Bool,
    Bytes,
    Callable,
    DeviceRef,
    Float,
    FrozenSet,
    Int,
    List,
    Mapping,
    Null,
    Opaque,
    Set,
    Struct,
    Symbol,
    Text,
    Tuple,
)
from optrove.serializer.hashes import canonical_bytes
from optrove.serializer.text import MAX_INT_BITS
from optrove.serializer.wire import decode, encode


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Null(), "null"),
        (Bool(True), "true"),
        (Int(1), "1"),
        (Float(1.0), "1.0"),
        (Float(1e300), "1e+300"),
        (Float(-0.0), "-0.0"),
        (Float(float("nan")), '{"$float":"nan"}'),
        (Float(float("-inf")), '{"$float":"-inf"}'),
        (Text("\u00e9"), '"\\u00e9"'),
        (Bytes(b"ab"), '{"$bytes":"YWI="}'),
        (Tuple((Int(1),)), '{"$tuple":[1]}'),
        (Set(frozenset({Int(10), Int(9), Text("a")})), '{"$set":["a",10,9]}'),
        (FrozenSet(frozenset({Int(10), Int(9)})), '{"$frozenset":[10,9]}'),
        (DeviceRef("d", (1, 2), 3), '{"$device":"d","identity":3,"mesh_shape":[1,2]}'),
        (Mapping(frozenset({(Text("b"), Int(1)), (Text("a"), Int(2))})), '{"a":2,"b":1}'),
        (Mapping(frozenset({(Text("$b"), Int(1))})), '{"$map":[["$b",1]]}'),
        (Mapping(frozenset({(Int(1), Null())})), '{"$map":[[1,null]]}'),
        (Mapping(frozenset()), "{}"),
        (Symbol("ttnn.DataType", "BFLOAT16"), '{"$symbol":"ttnn.DataType","name":"BFLOAT16"}'),
        (Struct("s", (("b", Int(1)), ("a", Int(2)))), '{"$struct":"s","fields":{"a":2,"b":1}}'),
        (Callable("m:f"), '{"$callable":"m:f"}'),
        (Opaque("t", "x"), '{"$opaque":"t","token":"x"}'),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_the_canonical_form_is_the_documented_one(value, text):
    assert canonical_bytes(value).decode("ascii") == text
    assert decode(encode(value)) == value


def test_values_that_python_calls_equal_stay_apart():
    alike = [Int(1), Bool(True), Float(1.0), Text("1"), Bytes(b"1"), List((Int(1),))]
    alike += [
        Tuple((Int(1),)),
        Set(frozenset({Int(1)})),
        FrozenSet(frozenset({Int(1)})),
        Float(0.0),
        Float(-0.0),
        Int(0),
        Null(),
    ]
    assert len({canonical_bytes(value) for value in alike}) == len(alike)
    assert len(set(alike)) == len(alike)


def test_strings_that_json_would_join_stay_apart():
    lone, pair, joined = "\ud834", "\ud834\udd1e", "\U0001d11e"
    found = {canonical_bytes(Text(text)) for text in (lone, pair, joined)}
    assert len(found) == 3


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (Int(2**MAX_INT_BITS), "limit"),
        (Struct("s", (("a", Int(1)), ("a", Int(2)))), "the same field twice"),
        (Mapping(frozenset({(Int(1), Int(1)), (Int(1), Int(2))})), "the same key twice"),
        (Symbol("\ud800", "x"), "surrogate"),
    ],
    ids=["number", "field", "key", "name"],
)
def test_what_no_reader_would_accept_is_not_written(value, problem):
    with pytest.raises(BadData, match=problem) as caught:
        encode(List((value,)))
    assert caught.value.faults[0].path == "$[0]"


def nested(levels):
    value = Null()
    for _ in range(levels):
        value = List((value,))
    return value


def test_the_limit_of_nesting_is_the_same_for_writing_and_reading():
    assert decode(encode(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    with pytest.raises(BadData, match="levels deep"):
        encode(nested(MAX_DEPTH + 1))
