"""What torch's own observer writes is the same as what optrove records."""

import json

import pytest

import optrove
from optrove.interop.execution_traces import read_execution_trace
from optrove.serializer.described import case_of
from optrove.trove.place import place_of
from optrove.trove.query import Query
from optrove.trove.reader import open_reader

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def program():
    x = torch.ones(2, 3, 8, 8)
    weight = torch.full((4, 3, 3, 3), 0.5)
    y = torch.nn.functional.conv2d(x, weight, padding=1).relu_()
    z = y.flatten(1)[1:].to(torch.bfloat16).masked_fill(torch.tensor(True), float("-inf"))
    torch.cat([z, z]).max(1, keepdim=True)
    y[:, [0, 1]].sum((2, 3)).add_(y.mean(), alpha=2)
    torch.nn.functional.gelu(y, approximate="tanh").softmax(-1)


def test_every_recorded_case_is_in_the_trace_of_the_observer(tmp_path):
    observer = torch.profiler.ExecutionTraceObserver()
    observer.register_callback(str(tmp_path / "trace.json"))
    with torch.no_grad():
        observer.start()
        program()
        observer.stop()
        observer.unregister_callback()
        with optrove.trace(tmp_path / "trove.db", backend="torch"):
            program()
    document = json.loads((tmp_path / "trace.json").read_text())
    (run,), fidelity = read_execution_trace(document, "trace.json", strict=True)
    assert fidelity.refused == 0
    with open_reader(place_of(str(tmp_path / "trove.db"))) as reader:
        recorded = {case_of(row.content) for row in reader.cases(Query(data_movement=True))}
    assert len(recorded) > 15
    assert recorded - {each.case for each in run.cases} == set()
