"""Numbers that vary without bound do not make a case for each value."""

import json

import pytest

import optrove
from commands import ask
from optrove.journal.families import MAX_CASES
from optrove.model.values import Float, Int
from optrove.serializer.described import case_of
from optrove.trove.place import place_of
from optrove.trove.query import Query
from optrove.trove.reader import open_reader

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

STEPS = 30


def record(tmp_path, program):
    store = tmp_path / "trove.db"
    with optrove.trace(store, backend="torch") as trace:
        program()
    return store, trace.summary()


def cases(store, op):
    with open_reader(place_of(str(store))) as reader:
        return list(reader.cases(Query(op=op, outermost_only=False, data_movement=True)))


def lines(store, tmp_path, op):
    """Return the exported calls of an op."""
    file = tmp_path / "calls.jsonl"
    ask("export", file, "--format", "jsonl", "--store", store)
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return [line for line in found if line["op_name"] == op]


@pytest.mark.parametrize("foreach", [False, True])
def test_an_optimizer_has_as_many_cases_after_many_steps_as_after_some(tmp_path, foreach):
    def train(steps):
        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=foreach)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()

    (tmp_path / "more").mkdir()
    _, some = record(tmp_path, lambda: train(STEPS))
    store, more = record(tmp_path / "more", lambda: train(2 * STEPS))
    assert more.cases == some.cases
    assert more.calls > 1.9 * some.calls
    with open_reader(place_of(str(store))) as reader:
        rows = list(reader.cases(Query(outermost_only=False, data_movement=True)))
    assert len(rows) == more.cases
    assert sum(row.calls for row in rows) == more.calls


def test_each_call_keeps_its_own_numbers(tmp_path):
    values = [0.5 + 0.25 * step for step in range(STEPS)]
    x = torch.ones(3)
    op = "torch.ops.aten.mul.Tensor"
    store, summary = record(tmp_path, lambda: [x * value for value in values])
    assert summary.cases == MAX_CASES
    kept = [case_of(row.content) for row in cases(store, op)]
    assert {dict(case.arguments)["other"] for case in kept} == {
        Float(value) for value in values[:MAX_CASES]
    }
    assert [line["kwargs"]["other"] for line in lines(store, tmp_path, op)] == values
    assert len({line["case_id"] for line in lines(store, tmp_path, op)}) == STEPS
    first = next(each for each in ask("show", op, "--json", "--store", store) if each["others"])
    assert first["arguments"]["other"] == values[0]
    assert first["calls"] == 1 + STEPS - MAX_CASES
    assert first["others"] == {
        "cases": STEPS - MAX_CASES,
        "calls": STEPS - MAX_CASES,
        "varies": {"other": {"values": STEPS, "lowest": values[0], "highest": values[-1]}},
    }
    (family,) = ask("show", op, "--families", "--json", "--store", store)
    assert family["others"] == [first["others"]]
    text = ask("show", op, "--store", store)
    assert f"{STEPS} values {values[0]}..{values[-1]}" in text


def test_the_index_of_a_sample_is_such_a_number_and_a_shape_is_not(tmp_path):
    data = torch.ones(STEPS, 3)
    store, _ = record(tmp_path, lambda: [data[place] for place in range(STEPS)])
    kept = [case_of(row.content) for row in cases(store, "torch.ops.aten.select.int")]
    assert {dict(case.arguments)["index"] for case in kept} == {Int(n) for n in range(MAX_CASES)}
    (tmp_path / "other").mkdir()
    store, _ = record(tmp_path / "other", lambda: [data[:place] for place in range(STEPS)])
    assert len(cases(store, "torch.ops.aten.slice.Tensor")) == STEPS


def test_the_case_that_others_count_as_is_replayed_as_it_was_recorded(tmp_path):
    data = torch.ones(STEPS, 3)
    store, _ = record(tmp_path, lambda: [data[place] * (place + 0.5) for place in range(STEPS)])
    counts = ask("sweep", "--json", "--store", store)["counts"]
    assert counts["passed"] == sum(counts.values()) == 2 * MAX_CASES


def test_a_merged_and_a_scrubbed_trove_keep_the_numbers(tmp_path):
    x = torch.ones(3)
    op = "torch.ops.aten.add.Tensor"
    store, _ = record(tmp_path, lambda: [x + value for value in range(STEPS)])
    expected = [line["kwargs"]["other"] for line in lines(store, tmp_path, op)]
    assert expected == list(range(STEPS))
    merged, scrubbed = tmp_path / "merged.db", tmp_path / "scrubbed.db"
    ask("merge", store, "-o", merged)
    ask("push", scrubbed, "--scrub", "--store", store)
    for each in (merged, scrubbed):
        assert [line["kwargs"]["other"] for line in lines(each, tmp_path, op)] == expected
        assert next(row for row in ask("show", op, "--json", "--store", each) if row["others"])
