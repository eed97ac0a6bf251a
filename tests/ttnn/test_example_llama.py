"""The small Llama runs on one chip and on two; what it calls is traced, and replays as itself."""

import json

import pytest

from example_runs import EXAMPLES, replayed_well, run

pytestmark = [pytest.mark.ttnn, pytest.mark.torch, pytest.mark.slow]

EXAMPLE = EXAMPLES / "llama"

WRONG_WEIGHT = """
from dataclasses import replace

import pytest

@pytest.fixture(autouse=True, scope="module")
def wrong_weight():
    import llama_loading
    import ttnn

    load = llama_loading.load

    def spoiled(weights, mesh, dtype):
        if dtype == ttnn.bfloat8_b:
            first, last = weights.layers
            weights = replace(weights, layers=(first, replace(last, key=-last.key)))
        return load(weights, mesh, dtype)

    llama_loading.load = spoiled
    yield
    llama_loading.load = load
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """The directory of a trove with all calls on two chips, and their JSON summary."""
    directory = tmp_path_factory.mktemp("traced")
    options = ("--board", "n300", "--shadow", "--store", "trove.db", "--json")
    done = run(directory, "optrove", "trace", str(EXAMPLE / "test_llama.py"), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "op calls computed, 0 without numbers" in done.stdout + done.stderr
    return directory, json.loads(done.stdout)


def test_on_two_chips_everything_passes_and_every_argument_is_traced(traced):
    answer = traced[1]
    assert answer["tests"] == {"passed": 8}
    assert answer["accounting"]["untraceable"] == {}
    assert answer["faults"] == {}
    ops = {each["op"] for each in answer["ops"]}
    assert {"ttnn.all_reduce", "ttnn.reduce_scatter", "ttnn.all_gather"} <= ops


def test_every_case_replays_as_itself_and_has_good_numbers(traced):
    assert len(replayed_well(traced[0], "n300")) > 100


def test_on_one_chip_it_passes_unless_a_weight_is_wrong(tmp_path):
    (tmp_path / "wrong_weight.py").write_text(WRONG_WEIGHT)
    plugin = ("-p", "wrong_weight", "-o", f"pythonpath={tmp_path}", "-p", "no:cacheprovider")
    done = run(
        tmp_path, "pytest", str(EXAMPLE), "--optrove-board", "n150", "--optrove-shadow", *plugin
    )
    assert done.returncode == 1, done.stdout
    assert "3 failed, 5 passed" in done.stdout
    assert "[bfloat16" not in done.stdout.split("short test summary info")[1]
