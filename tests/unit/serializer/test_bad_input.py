"""Whatever is wrong with data ends in BadData that says where."""

import sys

import pytest

from faults import faults_of
from optrove.errors import BadData
from optrove.model.case import Case
from optrove.model.records import Call, CallOutcome
from optrove.model.values import Text
from optrove.runconfig.jsonable import from_jsonable, to_jsonable
from optrove.serializer.records import record_from_builtins
from optrove.serializer.text import MAX_INT_BITS, read
from optrove.serializer.wire import decode

TENSOR = {
    "shape": [1],
    "dtype": "numpy.int8",
    "identity": 0,
    "storage": 0,
    "placement": {"kind": "numpy", "strides": [1], "offset": 0},
}

BAD_VALUES = {
    "unknown tag": ({"a": [{"$nope": 1}]}, "$.a[0]"),
    "two tags": ({"$set": [], "$tuple": []}, "$"),
    "tag among plain keys": ({"$tuple": [], "a": 1}, "$"),
    "missing companion": ({"$symbol": "t"}, "$"),
    "extra companion": ({"$symbol": "t", "name": "n", "x": 1}, "$"),
    "tuple of no list": ({"$tuple": "abc"}, "$.$tuple"),
    "set item twice": ({"$set": [1, 2, 1]}, "$.$set[2]"),
    "frozen set item twice": ({"$frozenset": [1, 1]}, "$.$frozenset[1]"),
    "frozen set of no list": ({"$frozenset": "ab"}, "$.$frozenset"),
    "map key twice": ({"$map": [[1, 2], [1, 3]]}, "$.$map[1]"),
    "map entry of three": ({"$map": [[1, 2, 3]]}, "$.$map[0]"),
    "map of no list": ({"$map": {}}, "$.$map"),
    "float of a number": ({"$float": 1.0}, "$.$float"),
    "float of a finite name": ({"$float": "1.0"}, "$.$float"),
    "complex of integers": ({"$complex": [1, 2]}, "$.$complex"),
    "complex of one": ({"$complex": [1.0]}, "$.$complex"),
    "bytes of no base64": ({"$bytes": "%%%"}, "$.$bytes"),
    "bytes with spare bits": ({"$bytes": "YWJ="}, "$.$bytes"),
    "bytes that are not ASCII": ({"$bytes": "\u00e9"}, "$.$bytes"),
    "text that is not UTF-8": ({"$text": "/w=="}, "$.$text"),
    "symbol name of a number": ({"$symbol": "t", "name": 3}, "$.name"),
    "type with a surrogate": ({"$symbol": "\ud800", "name": "n"}, "$.$symbol"),
    "fields of a list": ({"$struct": "t", "fields": []}, "$.fields"),
    "field with a surrogate": ({"$struct": "t", "fields": {"\ud800": 1}}, '$.fields["\\ud800"]'),
    "recipe of a number": ({"$handle": "t", "recipe": 1, "identity": 0}, "$.recipe"),
    "negative identity": ({"$handle": "t", "recipe": None, "identity": -1}, "$.identity"),
    "device without number": ({"$device": "t", "mesh_shape": [1]}, "$"),
    "negative device": ({"$device": "t", "mesh_shape": [1], "identity": -1}, "$.identity"),
    "mesh of a string": ({"$device": "t", "mesh_shape": "12", "identity": 0}, "$.mesh_shape"),
    "mesh of booleans": ({"$device": "t", "mesh_shape": [True], "identity": 0}, "$.mesh_shape[0]"),
    "tensor of a list": ({"$tensor": []}, "$.$tensor"),
    "tensor without dtype": (
        {"$tensor": {key: item for key, item in TENSOR.items() if key != "dtype"}},
        "$.$tensor",
    ),
    "tensor without storage": (
        {"$tensor": {key: item for key, item in TENSOR.items() if key != "storage"}},
        "$.$tensor",
    ),
    "storage of a string": ({"$tensor": {**TENSOR, "storage": "0"}}, "$.$tensor.storage"),
    "negative size": ({"$tensor": {**TENSOR, "shape": [-1]}}, "$.$tensor.shape[0]"),
    "unknown placement": (
        {"$tensor": {**TENSOR, "placement": {"kind": "moon"}}},
        "$.$tensor.placement",
    ),
    "unhashable placement": (
        {"$tensor": {**TENSOR, "placement": {"kind": []}}},
        "$.$tensor.placement",
    ),
    "float that is not JSON": ([float("nan")], "$[0]"),
    "infinity": ({"a": float("inf")}, "$.a"),
    "large number": ([1 << MAX_INT_BITS], "$[0]"),
    "key of a number": ({"a": {1: 2}}, "$.a"),
    "Python object": ([object()], "$[0]"),
    "Python tuple": ((1, 2), "$"),
}


@pytest.mark.parametrize(("data", "path"), BAD_VALUES.values(), ids=list(BAD_VALUES))
def test_a_bad_value_is_refused_with_its_path(data, path):
    assert path in faults_of(decode, data)


def test_all_faults_are_named_not_just_the_first():
    data = {"a": [{"$float": 1}, 1, {"$x": 1}], "b": {"c": {"$bytes": 3}}}
    assert list(faults_of(decode, data)) == ["$.a[0].$float", "$.a[2]", "$.b.c.$bytes"]


def test_every_field_of_a_tensor_is_checked():
    placement = {
        "kind": "ttnn",
        "padded_shape": [1.0],
        "layout": 1,
        "tile": {"shape": [1], "face_shape": [1, 2], "transpose_within_face": 0},
        "storage": None,
        "memory": {"$tuple": []},
        "mesh_shape": "x",
        "mesh": {"distribution_shape": [], "placements": ["x"], "coordinates": [1]},
        "device": -1,
    }
    where = "$.$tensor.placement"
    assert set(faults_of(decode, {"$tensor": {**TENSOR, "placement": placement}})) == {
        f"{where}.padded_shape[0]",
        f"{where}.layout",
        f"{where}.tile",
        f"{where}.tile.shape",
        f"{where}.tile.transpose_within_face",
        f"{where}.storage",
        f"{where}.memory",
        f"{where}.mesh_shape",
        f"{where}.mesh.placements[0]",
        f"{where}.mesh.coordinates[0]",
        f"{where}.device",
    }


@pytest.mark.parametrize("levels", [101, 1000, 100_000])
@pytest.mark.parametrize("wrap", [lambda data: [data], lambda data: {"$tuple": [data]}])
def test_huge_nesting_of_builtins_is_a_fault(levels, wrap):
    data = []
    for _ in range(levels):
        data = wrap(data)
    assert "levels deep" in str(faults_of(decode, data))
    while data:  # taken apart here, since Python would recurse to free it
        data = data[0] if isinstance(data, list) else data["$tuple"]


def test_data_that_contains_itself_is_a_fault():
    data = []
    data.append(data)
    assert "levels deep" in str(faults_of(decode, data))
    data.append(data)
    assert "the rest is not listed" in faults_of(decode, data)["$"]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 5000 + "]" * 5000])
def test_huge_nesting_of_text_is_a_fault(text):
    faults_of(lambda: decode(read(text)))


@pytest.mark.parametrize(
    "text",
    ["NaN", "[Infinity]", "-Infinity", "1" * 5000, '{"a":1,"a":2}', "", "{", '"\n"', "\ufeff1"],
    ids=["nan", "inf", "-inf", "digits", "key twice", "empty", "cut", "control", "mark"],
)
def test_text_that_is_not_strict_json_is_a_fault(text):
    faults_of(lambda: decode(read(text)))


def test_a_number_too_large_for_a_float_is_a_fault():
    assert "$" in faults_of(lambda: decode(read("1e999")))


@pytest.mark.parametrize("content", [b"\xff", b'"\xc3"', b"\xff\xfe1\x00", b'"\xed\xa0\x80"'])
def test_bytes_that_are_not_utf8_are_a_fault(content):
    assert "UTF-8" in faults_of(read, content)["$"]


def test_long_strings_are_read_and_written():
    text = "\u00e9" * 10_000_000
    assert decode(text) == Text(text)
    assert from_jsonable(to_jsonable(text)) == text


def test_a_long_string_in_the_wrong_place_gives_a_short_message():
    problems = faults_of(decode, {"$symbol": "t", "name": ["x" * 10_000_000]})
    problems |= faults_of(decode, {"$bytes": "x" * 1_000_001})
    problems |= faults_of(decode, {"$float": "x" * 10_000_000})
    assert all(len(problem) < 300 for problem in problems.values())


def test_an_unknown_class_of_python_is_a_fault():
    data = {"a": {"$struct": "python.Nope", "fields": {}}}
    assert "python.Nope" in faults_of(from_jsonable, data)["$.a"]


@pytest.mark.parametrize(
    "name", ["os.system", "builtins.eval", "subprocess.Popen", "", ".", "ttnn", "python", "a" * 9]
)
def test_a_name_outside_the_tables_is_a_fault_and_imports_nothing(name):
    before = set(sys.modules)
    assert "$" in faults_of(from_jsonable, {"$struct": name, "fields": {"args": ["true"]}})
    assert "$" in faults_of(from_jsonable, {"$symbol": name, "name": "system"})
    assert set(sys.modules) == before


def test_a_member_that_python_would_find_by_name_is_a_fault():
    assert "$" in faults_of(from_jsonable, {"$symbol": "python.Ellipsis", "name": "__class__"})


def test_missing_and_superfluous_fields_are_faults():
    data = [{"$struct": "python.slice", "fields": {"start": 1, "stop": 2, "other": 3}}]
    with pytest.raises(BadData) as caught:
        from_jsonable(data)
    assert [fault.path for fault in caught.value.faults] == ["$[0]", "$[0]"]
    assert "step" in str(caught.value)
    assert "other" in str(caught.value)


def test_fields_of_the_wrong_type_are_faults():
    data = [{"$struct": "python.PosixPath", "fields": {"path": [1]}}]
    assert "$[0]" in faults_of(from_jsonable, data)


def test_an_opaque_object_is_a_fault():
    data = to_jsonable([1, object()])
    assert "builtins.object" in faults_of(from_jsonable, data)["$[1]"]


def test_items_that_python_cannot_hold_in_a_set_are_faults():
    assert "$.$set[0]" in faults_of(from_jsonable, {"$set": [[1]]})
    assert "$.$set[1]" in faults_of(from_jsonable, {"$set": [1, True]})
    assert "$.$set[0]" in faults_of(from_jsonable, {"$set": [{"$set": [1]}]})
    assert "$.$map[0][0]" in faults_of(from_jsonable, {"$map": [[[1], 2]]})


def test_every_fault_of_a_record_is_named():
    data = {"run_id": 1, "op_index": "0", "depth": True, "outputs": [1, {"$x": 1}], "wrong": 1}
    data |= {"outcome": "great", "call_site": {"file": "f"}, "phase": [], "device": []}
    assert set(faults_of(record_from_builtins, data, Call)) == {
        "$",
        "$.run_id",
        "$.case_id",
        "$.op_index",
        "$.depth",
        "$.outputs[1]",
        "$.outcome",
        "$.call_site.line",
        "$.phase",
        "$.device",
    }


@pytest.mark.parametrize("data", [None, 1, "x", [], [["op", "x"]], {1: 2}, {"op": "x"}])
def test_a_record_of_the_wrong_shape_is_a_fault(data):
    faults_of(record_from_builtins, data, Case)


def test_an_outcome_has_to_be_one_of_the_known():
    names = ", ".join(outcome.value for outcome in CallOutcome)
    data = {"run_id": "r", "case_id": "c", "op_index": 0, "outcome": "fine"}
    assert names in faults_of(record_from_builtins, data, Call)["$.outcome"]
