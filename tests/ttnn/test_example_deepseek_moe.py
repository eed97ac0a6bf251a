"""The small DeepSeek runs on 32 chips; what it calls is traced with its config, and replays."""

import json

import pytest

from example_runs import EXAMPLES, replayed_well, run

pytestmark = [pytest.mark.ttnn, pytest.mark.torch, pytest.mark.slow]

EXAMPLE = EXAMPLES / "deepseek_moe"


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """The directory of a trove with all calls, and their JSON summary."""
    directory = tmp_path_factory.mktemp("traced")
    options = ("--board", "galaxy", "--shadow", "--store", "trove.db", "--json")
    done = run(directory, "optrove", "trace", str(EXAMPLE / "test_deepseek_moe.py"), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "op calls computed, 0 without numbers" in done.stdout + done.stderr
    return directory, json.loads(done.stdout)


def test_on_32_chips_everything_passes_and_every_argument_is_traced(traced):
    answer = traced[1]
    assert answer["tests"] == {"passed": 6}
    assert answer["accounting"]["untraceable"] == {}
    assert answer["faults"] == {}
    ops = {each["op"] for each in answer["ops"]}
    assert {"ttnn.all_reduce", "ttnn.reduce_scatter", "ttnn.all_gather"} <= ops
    assert "ttnn.transformer.paged_flash_multi_latent_attention_decode" in ops


def test_calls_of_all_layers_are_known_by_their_config_entry(traced):
    options = ("--by", "config", "--store", "trove.db", "--json")
    done = run(traced[0], "optrove", "who", "ttnn.linear", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    calls = {each["config"]: each["calls"] for each in json.loads(done.stdout)}
    assert "(none)" not in calls
    assert calls["layers.0.mlp.w1"] == calls["layers.2.mlp.routed.w1"] == 5


def test_every_case_replays_as_itself_and_has_good_numbers(traced):
    cases = replayed_well(traced[0], "galaxy")
    assert len(cases) > 150
    assert "ttnn.load_tensor" in {each["op"] for each in cases}
