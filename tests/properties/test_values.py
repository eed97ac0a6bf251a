"""Laws of the codec that hold for every Value."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
from optrove.model.case import Case
from optrove.model.values import (
    Bool,
    Bytes,
    Complex,
    Float,
    FrozenSet,
    Int,
    List,
    Mapping,
    Null,
    Set,
    Text,
    Tuple,
    walk,
)
from optrove.runconfig.jsonable import from_jsonable, to_jsonable
from optrove.serializer.described import describe_case
from optrove.serializer.hashes import canonical_bytes, placement_hash
from optrove.serializer.records import record_from_builtins, record_to_builtins
from optrove.serializer.text import read, write
from optrove.serializer.wire import decode, encode

bounded = settings(max_examples=100)

# What Python itself, JSON or a careless reader could take for the same.
CONFUSABLE = [
    *(
        Int(1),
        Bool(value=True),
        Float(1.0),
        Text("1"),
        Bytes(b"1"),
        Complex(Float(1.0), Float(0.0)),
    ),
    *(Int(0), Bool(value=False), Float(0.0), Float(-0.0), Null(), Text(""), List(()), Tuple(())),
    *(Float(float("nan")), Text("nan"), Set(frozenset()), Mapping(frozenset())),
    FrozenSet(frozenset()),
]
confusable = st.sampled_from(CONFUSABLE)
pairs = st.one_of(
    st.tuples(strategies.values, strategies.values),
    strategies.values.map(lambda value: (value, decode(encode(value)))),
    st.tuples(confusable, confusable),
    st.tuples(confusable, confusable).map(lambda pair: (List(pair), List(pair[::-1]))),
    st.tuples(confusable, confusable).map(lambda pair: (List(pair), Tuple(pair))),
    st.tuples(confusable, confusable).map(
        lambda pair: (Set(frozenset(pair)), Set(frozenset(pair[::-1])))
    ),
)


@bounded
@given(strategies.values)
def test_decoding_an_encoded_value_gives_it_back(value):
    assert decode(encode(value)) == value


@bounded
@given(strategies.values)
def test_the_encoded_form_survives_json_text(value):
    assert decode(read(write(encode(value)))) == value
    assert decode(json.loads(json.dumps(encode(value)))) == value


@bounded
@given(pairs)
def test_values_are_equal_exactly_when_their_canonical_bytes_are(pair):
    left, right = pair
    assert (left == right) == (canonical_bytes(left) == canonical_bytes(right))
    if left == right:
        assert hash(left) == hash(right)


@bounded
@given(strategies.values, st.randoms(use_true_random=False))
def test_canonical_bytes_do_not_depend_on_the_order_of_keys(value, random):
    assert canonical_bytes(decode(shuffled(encode(value), random))) == canonical_bytes(value)


def shuffled(data, random):
    if isinstance(data, list):
        return [shuffled(item, random) for item in data]
    if isinstance(data, dict):
        items = [(key, shuffled(item, random)) for key, item in data.items()]
        random.shuffle(items)
        return dict(items)
    return data


@bounded
@given(strategies.values)
def test_walking_visits_the_value_itself_first_and_ends(value):
    visited = [part for _, part in walk(value)]
    assert visited[0] is value


@bounded
@given(strategies.cases, strategies.cases)
def test_cases_are_equal_exactly_when_their_placement_hashes_are(left, right):
    assert (left == right) == (placement_hash(left) == placement_hash(right))
    assert placement_hash(Case(left.op, left.arguments[::-1])) == placement_hash(left)


@bounded
@given(strategies.cases)
def test_a_case_survives_its_record_form(case):
    again = record_from_builtins(read(write(record_to_builtins(case))), Case)
    assert again == case
    assert describe_case(again).semantic_id == describe_case(case).semantic_id


@bounded
@given(strategies.plain_objects)
def test_plain_python_objects_come_back_equal(live):
    data = json.loads(json.dumps(to_jsonable(live)))
    again = from_jsonable(data)
    assert again == live
    assert to_jsonable(again) == data


@bounded
@given(strategies.values)
def test_a_value_that_is_serialized_itself_stays_the_same(value):
    assert to_jsonable(value) == encode(value)
