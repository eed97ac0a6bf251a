"""The EfficientNet runs on a mock board; what it calls is traced, and replays as itself."""

import json

import pytest

from example_runs import EXAMPLES, replayed, replayed_well, run, traced

pytestmark = [pytest.mark.ttnn, pytest.mark.torch, pytest.mark.slow]

TEST = "efficientnet/test_efficientnet.py"
BOARD = ("--board", "n150")

WRONG_WEIGHT = """
from dataclasses import replace

import pytest

@pytest.fixture(autouse=True, scope="module")
def wrong_weight():
    import efficientnet_model

    convolve = efficientnet_model.Convolve

    class Spoiled(convolve):
        def __init__(self, convolution, *others):
            if convolution.groups > 1:
                convolution = replace(convolution, weight=-convolution.weight)
            super().__init__(convolution, *others)

    efficientnet_model.Convolve = Spoiled
    yield
    efficientnet_model.Convolve = convolve
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A directory with the trove of a small network, with block floats, run twice."""
    directory = tmp_path_factory.mktemp("traced")
    # The PCC that the example asks for was measured with ideal numerics.
    shadow = ("--shadow", "--numerics", "ideal")
    answer = traced(directory, TEST, *BOARD, *shadow, "--", "-k", "small-bfloat8_b")
    assert answer["tests"] == {"passed": 2}
    return directory


def test_every_case_replays_as_itself_and_has_good_numbers(project):
    ops = {each["op"] for each in replayed_well(project, "n150")}
    assert {"ttnn.conv2d", "ttnn.sigmoid_accurate", "ttnn.mean", "ttnn.linear"} <= ops


def test_the_whole_network_gives_many_configurations_of_one_operation(tmp_path):
    answer = traced(tmp_path, TEST, *BOARD, "--", "-k", "b0")
    unique = {each["op"]: each["unique"] for each in answer["ops"]}
    assert unique["ttnn.sigmoid_accurate"] >= 28
    assert len(replayed(tmp_path, *BOARD)) > 150
    filters = ("--shape", "1x1x12544x32", "--dtype", "bfloat8_b", "--memory", "L1_HEIGHT_SHARDED")
    done = run(
        tmp_path, "optrove", "show", "sigmoid_accurate", *filters, "--store", "trove.db", "--json"
    )
    placements = [
        each["arguments"]["input_tensor"]["$tensor"]["placement"]
        for each in json.loads(done.stdout)
    ]
    shards = [each["memory"]["fields"]["shard_spec"]["fields"]["shape"] for each in placements]
    assert shards
    assert all(shape == [224, 32] for shape in shards)


def test_a_wrong_weight_is_found_out(tmp_path):
    (tmp_path / "wrong_weight.py").write_text(WRONG_WEIGHT)
    plugin = ("-p", "wrong_weight", "-o", f"pythonpath={tmp_path}", "-p", "no:cacheprovider")
    board = ("--optrove-board", "n150", "--optrove-shadow")
    done = run(tmp_path, "pytest", str(EXAMPLES / TEST), "-k", "small-bfloat16", *board, *plugin)
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "FAILED" in done.stdout
    assert "test_pcc_with_torch[small-bfloat16]" in done.stdout
