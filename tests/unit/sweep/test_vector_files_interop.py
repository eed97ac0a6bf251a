import json

import pytest

from optrove.errors import BadData
from optrove.model.records import DeviceKind, DeviceParameters, Job, SweepModule
from optrove.serializer.hashes import placement_hash
from optrove.sweep.vector_files import HEADER, Vector, VectorFile, read_vectors, vector_document
from trove_rows import case, tensor

ADD = case("ttnn.add", input_tensor_a=tensor(32, 32), input_tensor_b=1.5)
MINE = case("sweep.mine.xfail_odd", size=3, shape=[1, 2])
RECORDED = Vector(
    Job(ADD, DeviceKind.HOST, device=DeviceParameters((1, 1)), outputs=(tensor(32, 32),)),
    placement_hash(ADD),
    calls=7,
    board="n150",
    raised="RuntimeError: no",
    notes=("a note",),
)
OWN = Vector(Job(MINE, DeviceKind.SHADOW, timeout_ns=3), placement_hash(MINE), "xfail_odd")
MODULE = SweepModule("mine", "/somewhere/mine.py", "ab" * 32)


@pytest.mark.parametrize(
    "content",
    [
        VectorFile((OWN,), MODULE, (("invalid: odd", 4),)),
        VectorFile((RECORDED,)),
        VectorFile(()),
    ],
)
def test_what_is_written_is_read_back(content):
    text = json.dumps(vector_document(content))
    assert read_vectors(json.loads(text)) == content


def test_the_order_is_that_of_suites_and_ids():
    document = vector_document(VectorFile((OWN,), MODULE))
    vector = document["xfail_odd"][OWN.case_id]
    assert vector["input_hash"] == OWN.case_id
    assert (vector["sweep_name"], vector["suite_name"]) == ("mine", "xfail_odd")
    assert vector_document(VectorFile((RECORDED,)))["model_traced"].keys() == {RECORDED.case_id}


def changed(change):
    document = json.loads(json.dumps(vector_document(VectorFile((OWN,), MODULE))))
    change(document)
    return document


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "no file of vectors"),
        ({"nightly": {}}, "no file of vectors"),
        (changed(lambda d: d[HEADER].update(version=9)), r"\$.\$optrove.version: version 9"),
        (changed(lambda d: d[HEADER].update(module=3)), "module: expected name, path and digest"),
        (changed(lambda d: d[HEADER].update(left_out=[[1, 2]])), "left_out: expected a list"),
        (changed(lambda d: d.update(more=[])), r"\$.more: expected an object of vectors"),
        (changed(lambda d: d["xfail_odd"].update(x=3)), r"xfail_odd.x: expected an object"),
        (changed(lambda d: d["xfail_odd"].update(x={"job": {}})), r"xfail_odd.x.job"),
        (
            changed(lambda d: d["xfail_odd"].update(x=d["xfail_odd"][OWN.case_id])),
            "its arguments are not those of this id",
        ),
        (
            changed(lambda d: d["xfail_odd"][OWN.case_id].update(calls="7", notes=3)),
            "calls: expected int(.|\n)*notes: expected a list of texts",
        ),
    ],
)
def test_faults_are_named_with_their_paths(document, problem):
    with pytest.raises(BadData, match=problem):
        read_vectors(document)
