"""What a trove answers, on either kind of database."""

from dataclasses import replace

import pytest

from optrove.model.case import Case
from optrove.model.ops import Amount, Counting, LeftOut
from optrove.model.records import Query
from optrove.model.trove import ModelRow, OpRow
from optrove.model.values import Opaque
from optrove.serializer.described import describe_case
from optrove.trove.reader import open_reader
from optrove.trove.trove import open_trove
from trove_rows import case, memory, tensor
from troves import ENVIRONMENT, Program, imported, run_of

LLAMA, RESNET = "meta/Llama", "resnet.py"
WIDE = memory("L1_WIDTH_SHARDED")


def matmul(rows, dtype="bfloat8_b", where=None, **more):
    weights = tensor(64, 64, dtype=dtype, where=where, number=1, mesh=(2, 4))
    return case("ttnn.matmul", input_tensor_a=tensor(1, rows, 64), input_tensor_b=weights, **more)


MATMUL, SHARDED, SMALL = matmul(32), matmul(64, where=WIDE), matmul(128, "bfloat16")
ADD = case("ttnn.add", input_tensor_a=tensor(32, 32, layout="ROW_MAJOR"), input_tensor_b=1.5)
UNKNOWN = Case("ttnn.add", (("a", Opaque("Strange", "7")),))
MOVE = case("ttnn.to_device", tensor=tensor(32, 32))
NAMES = {
    describe_case(each).case_id: name
    for name, each in {
        "matmul": MATMUL,
        "sharded": SHARDED,
        "small": SMALL,
        "add": ADD,
        "unknown": UNKNOWN,
        "move": MOVE,
    }.items()
}


def fill(trove, directory):
    """Add two imports, on two boards, and one traced run with a test and nested calls."""
    trove.add_imported(
        imported("a" * 8, (MATMUL, 100), (SHARDED, 40), (MOVE, 9), (ADD, 1), model=LLAMA)
    )
    trove.add_imported(
        imported(
            *("ab" + "c" * 6, (ADD, 50), (SMALL, 3), (UNKNOWN, 2)),
            source=RESNET,
            environment=replace(ENVIRONMENT, board="n150"),
            started_at="2026-01-03T00:00:00Z",
        )
    )
    program = Program(directory, run_of("traced", started_at="2026-01-01T00:00:00Z"))
    program.call("fake.relu", 1)
    program.within("test_x.py::test_y")
    program.call("fake.outer", 1, result=lambda: program.call("fake.inner", 2))
    program.call("fake.relu", 1)
    trove.add_journal(program.end())


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    return {}


@pytest.fixture
def reader(new_place, readers, request, tmp_path_factory):
    """Return a reader of the filled trove, which is made once for each kind of database."""
    kind = request.node.callspec.params["new_place"]
    if kind not in readers:
        place = new_place()
        with open_trove(place, create=True) as trove:
            fill(trove, tmp_path_factory.mktemp("journals"))
        readers[kind] = place
    with open_reader(readers[kind]) as opened:
        yield opened


def names(reader, **asked):
    return [NAMES.get(row.case_id, row.op) for row in reader.cases(Query(**asked))]


def test_ops_are_listed_with_their_totals_most_calls_first(reader):
    assert reader.ops(Query()) == (
        OpRow("ttnn.matmul", 3, 143, (LLAMA, RESNET), 1.0),
        OpRow("ttnn.add", 2, 53, (LLAMA, RESNET), 0.5),
        OpRow("fake.relu", 1, 2, ("traced.py",), 1.0),
        OpRow("fake.outer", 1, 1, ("traced.py",), 1.0),
    )


def test_data_movement_and_nested_ops_are_listed_when_asked_for(reader):
    ops = {row.op: row for row in reader.ops(Query(outermost_only=False, data_movement=True))}
    assert ops["ttnn.to_device"].calls == 9
    assert ops["fake.inner"].calls == 1
    assert not {"ttnn.to_device", "fake.inner"} & {row.op for row in reader.ops(Query())}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, ["matmul", "add", "sharded", "small", "unknown", "fake.relu", "fake.outer"]),
        ({"limit": 2}, ["matmul", "add"]),
        ({"limit": 0}, []),
        ({"op": "ttnn.matmul"}, ["matmul", "sharded", "small"]),
        ({"op": "ttnn.a*"}, ["add", "unknown"]),
        ({"op": "*.[ar]*"}, []),
        ({"op": "ttnn.ADD"}, []),
        ({"op": "*"}, ["matmul", "add", "sharded", "small", "unknown", "fake.relu", "fake.outer"]),
        ({"op": "ttnn.to_device"}, []),
        ({"op": "ttnn.to_device", "data_movement": True}, ["move"]),
        ({"model": "META/llama"}, ["matmul", "sharded", "add"]),
        ({"model": RESNET}, ["add", "small", "unknown"]),
        ({"model": "nobody"}, []),
        ({"board": "N150"}, ["add", "small", "unknown"]),
        ({"run_id": "a" * 8}, ["matmul", "sharded", "add"]),
        ({"run_id": "a" * 8, "board": "n150"}, []),
        ({"test_id": "test_x.py::test_y"}, ["fake.outer", "fake.relu"]),
        ({"test_id": "test_x.py::test_y", "model": LLAMA}, []),
        ({"dtype": "BFLOAT8_B"}, ["matmul", "sharded"]),
        ({"dtype": "bfloat8_b", "memory": "l1_width_sharded"}, ["sharded"]),
        ({"dtype": "bfloat16", "memory": "L1"}, []),
        ({"memory": "WIDTH_SHARDED"}, ["sharded"]),
        ({"memory": "L1"}, ["sharded"]),
        ({"memory": "SHARD"}, []),
        ({"memory": "%"}, []),
        ({"memory": "L1%SHARDED"}, []),
        ({"layout": "row_major"}, ["add"]),
        ({"shape": (1, 64, 64)}, ["sharded"]),
        ({"shape": (1, -1, 64)}, ["matmul", "sharded", "small"]),
        ({"shape": (-1, 64)}, ["matmul", "sharded", "small"]),
        ({"shape": (-1,)}, []),
        ({"mesh": (2, 4)}, ["matmul", "sharded", "small"]),
        ({"mesh": (2, 4), "argument": "input_tensor_a"}, []),
        ({"argument": "input_tensor_b", "dtype": "bfloat16"}, ["small"]),
        ({"replayable": False}, ["unknown"]),
        ({"replayable": True, "op": "ttnn.add"}, ["add"]),
        ({"op": "ttnn.add'; DROP TABLE cases; --"}, []),
    ],
    ids=str,
)
def test_a_query_selects_cases(reader, asked, expected):
    found = names(reader, **asked)
    # Equal numbers of calls are in the order of the ids, which say nothing.
    assert sorted(found) == sorted(expected)
    counts = [row.calls for row in reader.cases(Query(**asked))]
    assert counts == sorted(counts, reverse=True)
    if "limit" not in asked:
        assert reader.count(Query(**asked)) == len(expected)
        assert sum(row.cases for row in reader.ops(Query(**asked))) == len(expected)


def test_calls_are_counted_within_what_was_asked_for(reader):
    def calls(**asked):
        return {NAMES.get(row.case_id, row.op): row.calls for row in reader.cases(Query(**asked))}

    assert calls(op="ttnn.add") == {"add": 51, "unknown": 2}
    assert calls(op="ttnn.add", model=LLAMA) == {"add": 1}
    assert calls(test_id="test_x.py::test_y") == {"fake.relu": 1, "fake.outer": 1}
    assert calls(op="fake.inner", outermost_only=False) == {"fake.inner": 1}
    assert calls(op="fake.inner") == {}


def test_ops_of_a_filter_name_only_the_models_that_it_is_about(reader):
    (row,) = reader.ops(Query(op="ttnn.matmul", dtype="bfloat8_b"))
    assert (row.models, row.cases, row.calls) == ((LLAMA,), 2, 140)
    (row,) = reader.ops(Query(op="ttnn.add", board="n150"))
    assert (row.models, row.cases, row.replayable) == ((RESNET,), 2, 0.5)
    rows = reader.ops(Query(test_id="test_x.py::test_y"))
    assert {row.models for row in rows} == {("traced.py",)}


def test_a_case_is_found_by_its_id(reader):
    case_id = describe_case(MATMUL).case_id
    (row,) = reader.cases(Query(case_id=case_id))
    assert row.content == describe_case(MATMUL).content
    assert reader.find_case(case_id[:8]) == (case_id,)
    assert reader.find_case("xyz") == ()
    assert len(reader.find_case("")) == 9
    assert reader.known([case_id, "0" * 64]) == {case_id}
    assert reader.known([]) == set()


def test_runs_are_found_by_the_beginnings_of_their_ids(reader):
    assert reader.find_run("a") == ("a" * 8, "ab" + "c" * 6)
    assert reader.find_run("ab") == ("ab" + "c" * 6,)
    assert reader.find_run("%") == ()


def test_runs_are_listed_newest_first(reader):
    assert [row.run.id for row in reader.runs()] == ["ab" + "c" * 6, "a" * 8, "traced"]
    (row,) = reader.runs("traced")
    assert (row.calls, row.cases) == (3, 2)
    assert row.left == LeftOut(nested=Amount(1, 1, 1))
    (row,) = reader.runs("traced", Counting(nested=True))
    assert (row.calls, row.cases, row.left) == (4, 3, LeftOut())
    assert reader.runs("nope") == ()


def test_models_are_listed_with_their_totals(reader):
    moved, nested = LeftOut(moving=Amount(1, 1, 9)), LeftOut(nested=Amount(1, 1, 1))
    assert reader.models() == (
        ModelRow(LLAMA, 1, 2, 3, 141, ("n300",), "2026-01-02T03:04:05.000000Z", moved),
        ModelRow(RESNET, 1, 2, 3, 55, ("n150",), "2026-01-03T00:00:00Z"),
        ModelRow("traced.py", 1, 2, 2, 3, ("n300",), "2026-01-01T00:00:00Z", nested),
    )
    every = reader.models(Counting(all_ops=True, nested=True))
    assert [(row.ops, row.cases, row.calls) for row in every] == [
        (3, 4, 150),
        (2, 3, 55),
        (3, 3, 4),
    ]
    assert reader.model_names() == (LLAMA, RESNET, "traced.py")


@pytest.mark.parametrize("all_ops", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_ops_runs_and_models_count_alike(reader, all_ops, nested):
    counting = Counting(all_ops=all_ops, nested=nested)
    ops = reader.ops(Query(outermost_only=not nested, data_movement=all_ops))
    runs, models = reader.runs(counting=counting), reader.models(counting)
    calls = sum(row.calls for row in ops)
    assert calls == sum(row.calls for row in runs) == sum(row.calls for row in models)
    for row in runs:
        own = Query(run_id=row.run.id, outermost_only=not nested, data_movement=all_ops)
        assert row.cases == reader.count(own)
    for row in models:
        own = Query(model=row.model, outermost_only=not nested, data_movement=all_ops)
        assert (row.cases, row.ops) == (reader.count(own), len(reader.ops(own)))


def test_executions_come_in_the_order_of_the_ids_also_of_very_many(reader):
    asked = [f"{number:064x}" for number in range(2000)]
    asked[1500], asked[3] = describe_case(ADD).case_id, describe_case(SMALL).case_id
    rows = list(reader.executions(asked))
    assert [NAMES[row.case_id] for row in rows] == ["small", "add", "add"]
    assert [row.count for row in rows] == [3, 50, 1]
    assert len(reader.tensors(asked)) == 2
    assert len(reader.known(asked)) == 2


def test_an_answer_that_is_only_read_in_part_leaves_the_reader_usable(reader):
    rows = reader.cases(Query())
    first = next(rows)
    assert NAMES[first.case_id] == "matmul"
    assert reader.count(Query()) == 7
    rows.close()
    assert reader.count(Query()) == 7


def test_an_answer_is_of_one_state_while_others_write(new_place):
    place = new_place()
    with open_trove(place, create=True) as trove:
        trove.add_imported(imported("first", *(matmul(32 * rows) for rows in range(1, 300))))
        with trove.reader() as reader:
            rows = reader.cases(Query())
            found = [next(rows)]
            trove.remove_run("first")
            found += rows
            assert len(found) == 299
            assert reader.count(Query()) == 0


def test_names_that_are_no_valid_unicode_are_stored_escaped_and_found(trove, tmp_path):
    run = run_of("run \udc80", source="demo \udc81.py", model="model \udc82")
    program = Program(tmp_path, run)
    program.call("fake.add", 1, result=2)
    trove.add_journal(program.end())
    with trove.reader() as reader:
        (row,) = reader.runs(run.id)
        assert (row.run.id, row.run.source, row.calls) == (run.id, run.source, 1)
        assert len(list(reader.calls(run.id))) == 1
        assert reader.find_run("run \udc80") == (r"run \udc80",)
        assert reader.count(Query(model=run.model, run_id=run.id)) == 1
        assert reader.model_names() == (r"model \udc82",)
