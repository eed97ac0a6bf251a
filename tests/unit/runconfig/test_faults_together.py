"""Every fault of a document is named, whether it shows when reading or when building."""

from faults import faults_of
from optrove.runconfig.jsonable import from_jsonable


def test_what_cannot_be_read_does_not_hide_what_cannot_be_built():
    document = [
        {"$nope": 1},
        {"$struct": "python.range", "fields": {"start": 1}},
        {"$struct": "os.system", "fields": {}},
        {"$tuple": [{"$float": "many"}, {"$symbol": "python.nothing", "name": "x"}]},
    ]
    faults = faults_of(from_jsonable, document)
    assert set(faults) == {"$[0]", "$[1]", "$[2]", "$[3].$tuple[0].$float", "$[3].$tuple[1]"}
    assert "lacks the field" in faults["$[1]"]


def test_a_part_that_was_not_read_is_named_once():
    document = {"a": {"$struct": "python.range", "fields": {"start": {"$nope": 1}, "stop": 2}}}
    faults = faults_of(from_jsonable, document)
    assert set(faults) == {"$.a.fields.start", "$.a"}
    assert "lacks the field step" in faults["$.a"]


def test_a_huge_key_does_not_make_a_huge_message():
    (path,) = faults_of(from_jsonable, {"k" * 10_000_000: {"$nope": 1}})
    assert len(path) < 300
