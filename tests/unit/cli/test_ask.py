import contextlib
import json
import os
import pty
import shlex
import subprocess
import sys

import pytest

import commands
from optrove.capture.tracing import Tracing
from optrove.cli.ask import COMMANDS
from optrove.model.records import Phase, Scope
from optrove.serializer.described import describe_case
from small_trove import (
    ADD,
    LLAMA,
    LLAMA_CASES,
    LLAMA_IMPORT,
    LLAMA_RUN,
    RESNET,
    RESNET_IMPORT,
    RESNET_RUN,
    SHARDED,
    imported,
    make_trove,
    matmul,
    run_of,
)
from tracing import fake_op, perform
from trove_rows import case


@pytest.fixture(scope="module")
def trove(tmp_path_factory):
    path = tmp_path_factory.mktemp("trove") / "trove.db"
    return make_trove(path, LLAMA_IMPORT, RESNET_IMPORT)


@pytest.fixture
def ask(trove):
    return lambda *words, exit_code=0: commands.ask(*words, "--store", trove, exit_code=exit_code)


def id_of(one):
    return describe_case(one).case_id


def texts(lines):
    return [line.strip() for line in lines.splitlines()]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            "ops --board galaxy",
            ("none with --board galaxy; there are: n150, n300",),
        ),
        (
            "ops --model llamma-3.2-1B-instruct",
            (f"the nearest: {LLAMA}", "optrove models"),
        ),
        (
            "show ttnn.* 1",
            ("ttnn.add, ttnn.experimental.paged_fill_cache, ttnn.matmul; name one",),
        ),
        (
            "show matmull",
            ("Error: no op here is called 'matmull'; the nearest: ttnn.matmul;", "optrove ops"),
        ),
        ("show 0123456789abcdef", ("no case begins with '0123456789abcdef'",)),
        (
            "show matmul --argument weight",
            ("there are: input_tensor_a, input_tensor_b",),
        ),
        ("show matmul 1 --families", ("leave out",)),
        ("who adds", ("the nearest: ttnn.add",)),
        (
            f"diff llama-3.2-1b-instrukt {LLAMA_RUN}",
            (
                "is not a file, the start of a run id, or part of a model's name",
                f"models like it: {LLAMA}",
            ),
        ),
        (f"diff model:m {LLAMA_RUN}", (LLAMA, RESNET)),
    ],
)
def test_a_wrong_word_is_an_error_that_names_what_there_is(ask, command, words):
    error = ask(*command.split(), exit_code=2)
    assert [word for word in words if word not in error] == []


class TestOps:
    def test_are_listed_most_called_first_with_what_is_left_out(self, ask):
        assert texts(ask("ops")) == [
            "op                                  cases  calls  complete  models",
            "ttnn.matmul                             3    150      100%  2 models",
            f"ttnn.add                                1     50      100%  {RESNET}",
            f"ttnn.experimental.paged_fill_cache      8     16      100%  {LLAMA}",
            "",
            "3 ops, 12 cases, 216 calls from 2 models",
            "left out: 9 calls, 1 case of 1 op that only moves data (--all-ops counts them)",
        ]

    def test_for_machines_are_a_list(self, ask):
        rows = ask("ops", "--json")
        assert rows[0] == {
            "op": "ttnn.matmul",
            "cases": 3,
            "calls": 150,
            "models": sorted([LLAMA, RESNET]),
            "replayable": 1.0,
        }
        assert "ttnn.to_device" not in [row["op"] for row in rows]
        assert "ttnn.to_device" in [row["op"] for row in ask("ops", "--all-ops", "--json")]

    @pytest.mark.parametrize(
        "chosen", [("--model", "resnet"), ("--board", "N150"), ("--run", RESNET_RUN[:6])]
    )
    def test_are_those_of_a_model_a_board_or_a_run(self, ask, chosen):
        rows = ask("ops", *chosen, "--json")
        assert [(row["op"], row["calls"]) for row in rows] == [("ttnn.add", 50), ("ttnn.matmul", 3)]


class TestShow:
    def test_draws_one_block_per_configuration(self, ask):
        lines = ask("show", "matmul").splitlines()
        assert lines[:4] == [
            "Operation: ttnn.matmul",
            "Configurations: 3",
            "",
            f"Configuration 1: case {id_of(matmul())[:12]}, 100 calls",
        ]
        assert f"  used by: {LLAMA} (n300)" in lines
        assert "Configuration 3:" in "\n".join(lines)
        assert max(map(len, lines)) <= 80

    @pytest.mark.parametrize("name", ["ttnn.matmul", "ttnn::matmul", "matmul", "ttnn.mat*"])
    def test_takes_an_op_by_each_of_its_names(self, ask, name):
        assert "Operation: ttnn.matmul" in ask("show", name)

    def test_takes_the_beginning_of_a_case_s_id(self, ask):
        (found,) = ask("show", id_of(SHARDED)[:6], "--json")
        assert found["case_id"] == id_of(SHARDED)

    def test_shows_one_configuration_by_its_number(self, ask):
        lines = ask("show", "matmul", "2")
        assert f"Configuration 2: case {id_of(SHARDED)[:12]}, 40 calls" in lines
        assert "Configuration 1" not in lines
        error = ask("show", "matmul", "4", exit_code=2)
        assert "choose from 1 to 3" in error

    @pytest.mark.parametrize(
        ("filters", "count"),
        [
            (("--dtype", "BFLOAT8_B"), 2),
            (("--dtype", "bfloat8_b", "--memory", "WIDTH_SHARDED"), 1),
            (("--memory", "l1"), 1),
            (("--argument", "input_tensor_a", "--dtype", "bfloat16"), 3),
            (("--argument", "input_tensor_b", "--dtype", "bfloat16"), 1),
            (("--shape", "1x1x32x64"), 2),
            (("--shape", "[1, 1, *, 64]"), 3),
            (("--shape", "64,64", "--dtype", "bfloat16"), 1),
            (("--layout", "tile"), 3),
            (("--mesh", "1x1"), 3),
            (("--model", RESNET), 1),
            (("--board", "n300"), 3),
            (("--run", LLAMA_RUN), 3),
            (("--limit", "2"), 2),
        ],
    )
    def test_filters_choose_cases(self, ask, filters, count):
        assert len(ask("show", "matmul", *filters, "--json")) == count

    def test_counts_and_executions_are_those_of_the_filters(self, ask):
        (one,) = ask("show", "matmul", "--model", "resnet", "--json")
        assert one["calls"] == 3
        assert [each["run_id"] for each in one["executions"]] == [RESNET_RUN]
        assert one["models"] == [RESNET]
        heading = ask("show", "matmul", "--model", "resnet")
        assert "Configurations: 1 of 3" in heading

    def test_gives_machines_all_of_a_case(self, ask):
        first = ask("show", "matmul", "--json")[0]
        assert first["semantic_id"] == describe_case(matmul()).semantic_id
        assert first["arguments"]["input_tensor_b"]["$tensor"]["dtype"] == "ttnn.bfloat8_b"
        (execution,) = first["executions"]
        assert execution["count"] == 100
        assert execution["machine_info"]["device_series"] == "n300"

    def test_sums_up_families(self, ask):
        lines = ask("show", "paged_fill_cache", "--families")
        assert "Configurations: 8" in lines
        assert "Families: 1" in lines
        assert "  batch_idx: 8 values 0..7" in lines
        (family,) = ask("show", "paged_fill_cache", "--families", "--json")
        assert family["varies"] == {"batch_idx": list(range(8))}

    def test_shows_a_data_movement_op_that_is_named(self, ask):
        assert "Operation: ttnn.to_device" in ask("show", "to_device")
        assert "to_device" not in ask("show", "*")
        assert "Operation: ttnn.to_device" in ask("show", "*", "--all-ops")

    def test_filters_that_leave_nothing_say_which_took_how_many(self, ask):
        error = ask(
            *("show", "matmul", "--dtype", "bfloat8_b", "--memory", "HEIGHT_SHARDED"), exit_code=2
        )
        assert error == (
            "Error: no case matches: 3 cases of ttnn.matmul, 2 with --dtype bfloat8_b, none with "
            "--memory HEIGHT_SHARDED; there are: DRAM_INTERLEAVED, L1_WIDTH_SHARDED "
            "(of tensors; optrove show lists all arguments)\n"
        )

    @pytest.mark.parametrize("shape", ["32by32", "", "1x-2", "1x2x"])
    def test_what_is_no_shape_is_refused(self, ask, shape):
        assert "write 1x1x32x64" in ask("show", "matmul", "--shape", shape, exit_code=2)


class TestWho:
    def test_lists_models_with_calls_and_boards(self, ask):
        lines = ask("who", "matmul").splitlines()
        assert lines[0] == "ttnn.matmul: 3 cases, 150 calls"
        assert lines[3] == f"  147      3  n300   {LLAMA}"
        assert f"    3      1  n150   {RESNET}" in lines
        assert lines[-1] == "2 models"

    def test_answers_in_which_shardings_bfloat8_b_weights_come(self, ask):
        words = ("who", "matmul", "--argument", "input_tensor_b", "--dtype", "bfloat8_b")
        assert ask(*words, "--by", "memory", "--json") == [
            {"memory": "DRAM_INTERLEAVED", "calls": 100, "cases": 1, "models": [LLAMA]},
            {"memory": "L1_WIDTH_SHARDED", "calls": 40, "cases": 1, "models": [LLAMA]},
        ]
        assert texts(ask(*words, "--by", "memory"))[1] == "100      1       1  DRAM_INTERLEAVED"

    def test_takes_a_case(self, ask):
        (row,) = ask("who", id_of(ADD)[:10], "--json")
        assert (row["op"], row["source"], row["calls"]) == ("ttnn.add", RESNET, 50)


class TestRunsAndModels:
    def test_runs_are_listed_newest_first(self, ask):
        lines = ask("runs").splitlines()
        assert lines[1].startswith(f"{RESNET_RUN[:12]}  2026-01-03 03:04  n150")
        assert lines[1].endswith(RESNET)
        assert lines[-2:] == [
            "2 runs",
            "left out: 9 calls of ops that only move data (--all-ops counts them)",
        ]
        first, second = ask("runs", "--all-ops", "--json")
        assert (first["run_id"], second["model"]) == (RESNET_RUN, LLAMA)
        assert second["calls"] == sum(count for _, count in LLAMA_CASES)
        assert second["machine"]["board_type"] == "Wormhole"

    def test_models_are_listed_with_their_totals(self, ask):
        rows = {row["model"]: row for row in ask("models", "--json")}
        moved = rows[LLAMA]["left_out"]["data_movement"]
        assert moved == {"ops": 1, "cases": 1, "calls": 9}
        assert rows[LLAMA]["calls"] + 9 == sum(count for _, count in LLAMA_CASES)
        assert rows[LLAMA]["boards"] == ["n300"]
        assert rows[RESNET]["ops"] == 2
        assert LLAMA in ask("models")

    def test_an_empty_trove_is_an_error_with_advice(self, tmp_path):
        path = make_trove(tmp_path / "empty.db")
        for words in (["ops"], ["runs"], ["models"]):
            result = commands.run(*words, "--store", path)
            assert result.exit_code == 2
            assert "optrove trace, optrove import" in result.stderr


class TestDiff:
    def test_of_a_run_with_itself_is_nothing(self, ask):
        assert "nothing differs" in ask("diff", LLAMA_RUN[:8], f"model:{LLAMA}")

    def test_of_two_models_ends_with_one(self, ask):
        data = ask("diff", "llama", f"run:{RESNET_RUN[:6]}", "--json", exit_code=1)
        assert (data["a"]["kind"], data["b"]["kind"]) == ("model", "run")
        assert data["equal"] is False
        assert [each["op"] for each in data["added"]] == ["ttnn.add"]
        assert len(data["removed"]) == 10
        assert [(each["calls_a"], each["calls_b"]) for each in data["recounted"]] == [(7, 3)]

    def test_of_troves_shows_what_is_placed_otherwise(self, ask, trove, tmp_path):
        changed = [(matmul(where="L1_INTERLEAVED"), 100), *LLAMA_CASES[1:]]
        run = run_of("ab" * 16, "demo.py", model=LLAMA, board="n300")
        other = make_trove(tmp_path / "other.db", imported(run, changed), RESNET_IMPORT)
        lines = ask("diff", str(trove), str(other), exit_code=1)
        assert "cases: 0 added, 0 removed, 1 changed, 0 called more or less often" in lines
        assert "input_tensor_b.memory.buffer_type: BufferType.DRAM -> BufferType.L1" in lines
        assert "buffer_type" not in ask("diff", str(trove), str(other), "--brief", exit_code=1)

    def test_without_calls_compares_cases_only(self, ask, trove, tmp_path):
        more = imported(run_of("cd" * 16, RESNET), [(one, 99) for one, _ in LLAMA_CASES])
        other = make_trove(tmp_path / "other.db", more)
        words = ("diff", LLAMA_RUN, str(other))
        assert "called more or less" not in ask(*words, "--cases-only")
        assert "11 called more or less often" in ask(*words, exit_code=1)
        assert "12 called more or less often" in ask(*words, "--all-ops", exit_code=1)

    def test_of_two_empty_troves_is_an_error(self, ask, tmp_path):
        empty = str(make_trove(tmp_path / "empty.db"))
        assert "holds a case to compare" in ask("diff", empty, empty, exit_code=2)

    def test_of_names_without_a_trove_says_so(self, tmp_path):
        missing = str(tmp_path / "none.db")
        result = commands.run("diff", "a", "b", "--store", missing)
        assert result.exit_code == 2
        assert "there is no file 'a', and no run or model either" in result.stderr

    def test_of_a_file_that_is_something_else_is_an_error(self, ask, tmp_path):
        strange = tmp_path / "strange.json"
        strange.write_text('{"answer": 42}')
        assert "strange.json" in ask("diff", str(strange), LLAMA_RUN, exit_code=2)


MASTER = {
    "operations": {
        "ttnn.add": {
            "configurations": [
                {
                    "config_id": 1,
                    "arguments": {"arg0": number, "arg1": 2},
                    "executions": [{"source": "demo.py", "machine_info": {}, "count": 3}],
                }
                for number in (1, 5)
            ]
        }
    }
}


def test_files_are_compared_without_a_trove(tmp_path):
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    a.write_text(json.dumps(MASTER))
    b.write_text(json.dumps(MASTER).replace('"arg0": 5', '"arg0": 6'))
    missing = str(tmp_path / "none.db")
    result = commands.run("diff", a, b, "--store", missing)
    assert result.exit_code == 1, result.output
    assert "cases: 1 added, 1 removed, 0 changed, 0 called more or less often" in result.stdout
    same = commands.run("diff", a, a, "--store", missing)
    assert same.exit_code == 0


@pytest.fixture
def left_behind(tmp_path):
    """Leave the journal of a run with tests and nested calls beside a trove that is not there."""
    store = tmp_path / "trove.db"
    run = run_of("ee" * 16, "test_fake.py", model="fake", board="n150")
    tracing = Tracing(tmp_path / "trove.db.journals" / run.id, run, backend="torch")
    outer, inner = fake_op("fake.linear", composite=True), fake_op("fake.add")
    tracing.start()
    try:
        for name in ("test_one", "test_two"):
            tracing.enter(Scope(f"test_fake.py::{name}", Phase.CALL))
            perform(
                tracing.recorder,
                outer,
                lambda a, b: perform(tracing.recorder, inner, lambda a, b: a + b, a, b),
                *(1, 2),
            )
        perform(tracing.recorder, outer, lambda a, b: a + b, 1, 2)
    finally:
        tracing.stop(0)
    return store


def test_what_a_dead_process_has_left_is_there_and_tests_are_distinguished(left_behind):
    result = commands.run("who", "linear", "--store", left_behind, "--json")
    assert "recovered run eeeeeeeeeeee" in result.stderr
    rows = json.loads(result.stdout)
    assert [(row["test"], row["calls"]) for row in rows] == [
        ("test_fake.py::test_two", 2),
        ("test_fake.py::test_one", 1),
    ]


def test_calls_by_other_ops_are_counted_on_demand(left_behind):
    def ops(*words):
        result = commands.run("ops", "--store", left_behind, "--json", *words)
        return {row["op"]: row["calls"] for row in json.loads(result.stdout)}

    assert ops() == {"fake.linear": 3}
    assert ops("--nested") == {"fake.linear": 3, "fake.add": 2}
    store = ("--store", str(left_behind))
    refused = commands.run("show", "fake.add", *store)
    assert refused.exit_code == 2
    assert "add --nested" in refused.stderr
    shown = commands.run("show", "fake.add", "--nested", *store)
    assert "Configuration 1: case" in shown.stdout
    case_id = id_of(case("fake.add", a=1, b=2))
    assert commands.run("show", case_id, *store).exit_code == 0


@pytest.mark.parametrize("command", COMMANDS[:-1], ids=lambda command: command.name)
def test_every_command_takes_a_store_and_prints_json(command):
    options = {name for option in command.params for name in option.opts}
    assert {"--store", "--json"} <= options


def test_a_trove_that_is_not_there_is_an_error_with_advice(tmp_path):
    for words in (["ops"], ["show", "add"], ["who", "add"], ["runs"], ["models"]):
        result = commands.run(*words, "--store", tmp_path / "none.db")
        assert result.exit_code == 2
        assert "optrove trace, optrove import" in result.stderr


def test_asking_in_a_process_of_its_own_imports_nothing_slow(trove):
    script = (
        "import sys; from optrove.cli.main import main\n"
        "try:\n    main()\n"
        "finally:\n"
        "    slow = {'ttnn', 'torch', 'numpy', 'rich', 'difflib'}\n"
        "    print(sorted(slow & set(sys.modules)), file=sys.stderr)\n"
    )
    for words in (["ops"], ["show", "matmul"], ["who", "matmul"]):
        command = [sys.executable, "-c", script, *words, "--store", str(trove)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "ttnn.matmul" in done.stdout
        assert done.stderr == "[]\n"


def on_a_terminal(trove, *words, lines, pager="sed s/^/paged:/", **variables):
    """Return the output of a command on a terminal of so many lines; paged lines are marked."""
    master, slave = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "LESS")}
    environment |= {"PAGER": pager, "LINES": str(lines), "COLUMNS": "80", **variables}
    command = [sys.executable, "-m", "optrove", *words, "--store", str(trove)]
    with subprocess.Popen(command, stdout=slave, stdin=slave, env=environment) as process:
        os.close(slave)
        shown = b""
        # Linux ends the output of a terminal that nobody writes to any more with an error.
        with contextlib.suppress(OSError):
            while part := os.read(master, 4096):
                shown += part
        assert process.wait() == 0
    os.close(master)
    return shown.decode().splitlines()


def test_a_list_that_is_longer_than_the_screen_goes_through_the_pager(trove):
    shown = on_a_terminal(trove, "show", "*", lines=20)
    assert len(shown) > 20
    assert shown[0] == "paged:Operation: ttnn.add"
    assert all(line.startswith("paged:") for line in shown)


def test_nobody_has_to_press_a_key(trove):
    for words, variables in (
        (("show", "*", "--no-pager"), {}),
        (("--no-pager", "show", "*"), {}),
        (("show", "*"), {"CI": "true"}),
    ):
        shown = on_a_terminal(trove, *words, lines=20, **variables)
        assert shown[0] == "Operation: ttnn.add"
        assert len(shown) > 20


def test_less_ends_by_itself_where_the_text_fits_unless_the_user_has_set_it(trove, tmp_path):
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\ncat > /dev/null\necho less=$LESS\n")
    pager.chmod(0o755)
    assert on_a_terminal(trove, "show", "*", lines=20, pager=str(pager)) == ["less=FRX"]
    own = on_a_terminal(trove, "show", "*", lines=20, pager=str(pager), LESS="-S")
    assert own == ["less=-S"]


def test_a_list_that_fits_goes_straight_to_the_screen_and_is_cut_to_its_width(trove):
    shown = on_a_terminal(trove, "ops", lines=40)
    assert shown[0].startswith("op ")
    assert max(map(len, shown)) <= 80


@pytest.fixture
def raising(tmp_path):
    """A trove with an op whose calls raise for some arguments, for one of them not always."""
    tracing = Tracing(tmp_path / "journals", run_of("raising", "raising.py"))

    def refuse(number):
        if number < 0:
            raise RuntimeError(f"TT_THROW @ a.cpp:1: x\ninfo:\nno {number}\nbacktrace:\n --- b")

    def sometimes(number):
        returned.append(number)
        refuse(number if len(returned) > 1 else -number)

    returned = []
    calls = [(refuse, "add", number) for number in (1, -2, -2, 3)]
    calls += [(sometimes, "mul", 4)] * 2 + [(refuse, "sub", 5)]
    tracing.start()
    for function, op, number in calls:
        with contextlib.suppress(RuntimeError):
            perform(tracing.recorder, fake_op(f"fake.{op}"), function, number)
    tracing.stop(0)
    path = tmp_path / "trove.db"
    commands.run("trace", "--from", tmp_path / "journals", "--store", path)
    return path


def test_calls_that_raised_are_found_with_their_reason(raising):
    def ask(*words):
        return commands.ask(*words, "--store", raising)

    rows = ask("ops", "--raised", "--json")
    assert {row["op"]: (row["cases"], row["calls"]) for row in rows} == {
        "fake.add": (1, 2),
        "fake.mul": (1, 1),
    }
    shown = ask("show", "add", "--raised")
    assert "Configurations: 1 of 3" in shown
    assert "  raised when recorded: RuntimeError: no -2 (TT_THROW @ a.cpp:1: x)\n" in shown
    (case,) = ask("show", "add", "--raised", "--json")
    assert case["recorded_error"].endswith("backtrace:\n --- b")
    assert "raised when recorded: 1 of 2 calls, RuntimeError: no -4" in ask("show", "mul")
    assert ask("show", "mul", "--json")[0]["recorded_error"] is None
    refusal = commands.ask("show", "sub", "--raised", "--store", raising, exit_code=2)
    assert "1 case of fake.sub, none with --raised" in refusal


def test_a_trace_says_what_its_calls_raised(raising):
    shown = commands.ask("trace", "--from", raising.parent / "journals", "--store", raising)
    assert "errors that calls raised:\n  2x fake.add: RuntimeError: no -2 (TT_THROW" in shown
    data = commands.ask(
        "trace", "--from", raising.parent / "journals", "--store", raising, "--json"
    )
    assert sum(data["errors"].values()) == 3


def test_a_reader_that_stops_early_is_no_fault(trove):
    words = (sys.executable, "-m", "optrove", "show", "*", "--store", str(trove))
    command = f"{shlex.join(words)} | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "Operation: ttnn.add\n"
    assert done.stderr == ""


def test_pictures_of_sharded_tensors_are_written_and_their_paths_printed(ask, tmp_path):
    directory = tmp_path / "new" / "pictures"
    shown = ask("show", "matmul", "--svg", str(directory))
    named = [line.removeprefix("  picture: ") for line in shown.splitlines() if "picture:" in line]
    assert named == [str(path) for path in directory.iterdir()]
    (path,) = directory.iterdir()
    assert path.name.startswith(f"{id_of(SHARDED)[:12]}-input_tensor")
    assert path.read_text().startswith("<svg")
    assert "picture:" not in ask("show", "add", "--svg", str(directory))
    assert "cannot be written" in ask(
        "show", "matmul", "--svg", str(path / "in a file"), exit_code=2
    )
    assert "leave out" in ask("show", "matmul", "--svg", str(directory), "--json", exit_code=2)
