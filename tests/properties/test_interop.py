"""Whatever a Case holds, it comes back from the files that are written for others."""

import io
import json
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

import masters
from optrove.interop.fidelity import parse
from optrove.interop.master_reader import read_master
from optrove.interop.master_writer import write_master
from optrove.interop.printed import NotAlmostJson, UnknownForm, parse_almost_json, read_printed
from optrove.interop.text_form import read_text, write_text
from optrove.model.records import CallOutcome
from optrove.model.trove import ExecutionRow, Machine
from optrove.serializer.hashes import placement_hash
from strategies import cases, names

machines = st.builds(
    Machine,
    board_type=st.none() | st.sampled_from(["Wormhole", "Blackhole"]),
    device_series=st.none() | st.sampled_from(["n300", "tt-galaxy-wh"]),
    card_count=st.none() | st.integers(0, 40),
    mesh_device_shape=st.none() | st.lists(st.integers(0, 9), max_size=3).map(tuple),
)
sources = st.tuples(names, st.none() | names, machines)
executed = st.dictionaries(sources, st.integers(0, 10**9), min_size=1, max_size=3)
troves = st.dictionaries(cases, executed, max_size=4)


def rows(executions):
    return [
        ExecutionRow(
            case_id="",
            run_id="",
            source=source,
            model=model,
            machine=machine,
            board=None,
            test_id=None,
            phase=None,
            module=None,
            mode=None,
            outermost=True,
            outcome=CallOutcome.RETURNED,
            count=count,
            total_ns=None,
            outputs=None,
            error=None,
        )
        for (source, model, machine), count in executions.items()
    ]


def content(runs):
    found = {}
    for imported in runs:
        source = imported.run.source, imported.run.model, imported.machine
        for each in imported.cases:
            found[placement_hash(each.case), source] = (each.case, each.count)
    return found


def stored(trove):
    return {
        (placement_hash(case), source): (case, count)
        for case, executions in trove.items()
        for source, count in executions.items()
    }


@given(troves)
@settings(deadline=None, max_examples=50)
def test_a_master_file_gives_back_what_was_written(trove):
    stream = io.BytesIO()
    written = write_master(stream, ((case, rows(each)) for case, each in trove.items()))
    runs, fidelity = read_master(parse(stream.getvalue()), "a file", strict=False)
    assert content(runs) == stored(trove)
    assert fidelity.adds_up()
    assert fidelity.configurations >= fidelity.cases == written.cases == len(trove)


@given(troves)
@settings(deadline=None, max_examples=50)
def test_a_text_file_gives_back_what_was_written_whatever_the_order(trove):
    stream, backwards = io.BytesIO(), io.BytesIO()
    write_text(stream, ((case, rows(each)) for case, each in trove.items()))
    write_text(backwards, ((case, rows(each)[::-1]) for case, each in reversed(trove.items())))
    assert stream.getvalue() == backwards.getvalue()
    lines = stream.getvalue().splitlines(keepends=True)
    assert lines == sorted(lines)
    runs, fidelity = read_text(lines, "a file", strict=True)
    assert content(runs) == stored(trove)
    assert fidelity.adds_up()
    assert fidelity.understood == len(trove)


@given(troves)
@settings(deadline=None, max_examples=50)
def test_both_files_tell_of_the_same_runs(trove):
    master, text = io.BytesIO(), io.BytesIO()
    pairs = [(case, rows(each)) for case, each in trove.items()]
    write_master(master, pairs)
    write_text(text, pairs)
    by_master, _ = read_master(parse(master.getvalue()), "a file", strict=False)
    by_text, _ = read_text(text.getvalue().splitlines(keepends=True), "a file", strict=False)
    assert [each.run for each in by_master] == [each.run for each in by_text]


sizes = st.lists(st.integers(0, 70), min_size=1, max_size=4)
cores = st.builds(lambda x, y: {"x": x, "y": y}, st.integers(0, 9), st.integers(0, 9))
shards = st.builds(
    lambda ends, shape: {
        "grid": [{"start": start, "end": end} for start, end in ends],
        "shape": shape,
        "orientation": "ShardOrientation.COL_MAJOR",
    },
    st.lists(st.tuples(cores, cores), max_size=2),
    st.lists(st.integers(1, 64), min_size=2, max_size=2),
)
memories = st.builds(masters.memory) | st.builds(
    masters.memory,
    st.sampled_from(["WIDTH_SHARDED", "BLOCK_SHARDED", "HEIGHT_SHARDED"]),
    st.just("L1"),
    shards,
)
spelled_tensors = st.builds(
    masters.tensor,
    sizes,
    st.sampled_from(["BFLOAT16", "BFLOAT8_B", "UINT32"]),
    st.sampled_from(["TILE", "ROW_MAJOR"]),
    memories,
)
spelled_values = st.recursive(
    spelled_tensors
    | memories
    | st.sampled_from(list(masters.EVERYTHING.values()))
    | st.builds(masters.semaphore, st.integers(0, 3))
    | st.builds(lambda n: {"type": "Mystery", "value": f"<object at {n:#x}>"}, st.integers(0, 9))
    | st.integers()
    | st.floats(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from(["arg0", "arg1", "arg10", "dim", "x"]), spelled_values))
@settings(deadline=None, max_examples=50)
def test_what_a_master_file_spells_is_spelled_the_same_way_again(arguments):
    document = masters.master(masters.configuration(arguments), last_updated=None)
    runs, fidelity = read_master(document, "a file", strict=False)
    stream = io.BytesIO()
    write_master(stream, masters.rows_of(runs))
    assert b'"optrove"' not in stream.getvalue()
    again, fidelity_again = read_master(parse(stream.getvalue()), "a file", strict=False)
    assert again == runs
    assert fidelity_again.verbatim == fidelity.verbatim
    assert fidelity.adds_up()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=10,
)


@given(json_values)
def test_what_is_json_is_read_as_json(data):
    assert parse_almost_json(json.dumps(data)) == data


@given(st.text(st.sampled_from('{}[]()"-:,=x0189. TileShape')) | st.text())
def test_any_text_is_read_or_refused(text):
    with suppress(UnknownForm):
        read_printed(text)
    with suppress(NotAlmostJson):
        parse_almost_json(text)
