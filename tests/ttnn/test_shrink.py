"""A case that ttnn refuses on a mock board is shrunk, and its reproducer fails in the same way."""

import json

import pytest
from click.testing import CliRunner

from broken_cases import matmul, tensor
from forked_python import python
from optrove.cli.main import main
from optrove.model.case import Case
from optrove.model.values import Bool
from optrove.serializer.hashes import placement_hash
from small_trove import imported, make_trove, run_of

pytestmark = [pytest.mark.ttnn, pytest.mark.slow]

RIGHT = matmul(tensor(0, (1, 1, 64, 96)), tensor(1, (1, 1, 96, 64)))
WRONG = Case(
    "ttnn.matmul",
    (
        ("input_tensor_a", tensor(0, (1, 1, 64, 96))),
        ("input_tensor_b", tensor(1, (1, 1, 512, 64), "bfloat8_b")),
        ("transpose_a", Bool(value=False)),
    ),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("trove") / "trove.db"
    run = run_of("c0ffee" + "0" * 26, "wrong.py", board="n150")
    return make_trove(path, imported(run, [(RIGHT, 1), (WRONG, 1)]))


def ask(store, *words):
    return CliRunner().invoke(main, ["shrink", *words, "--store", str(store)])


@pytest.fixture(scope="module")
def shrunk(store, tmp_path_factory):
    """The JSON of the failing case after shrinking."""
    directory = str(tmp_path_factory.mktemp("shrunk"))
    name = placement_hash(WRONG)[:12]
    result = ask(store, name, "--board", "n150", "-o", directory, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_smallest_call_that_fails_in_the_same_way_is_found(shrunk):
    assert shrunk["finished"]
    assert shrunk["outcome"] == "rejected"
    assert sorted(shrunk["shrunk"]["arguments"]) == ["input_tensor_a", "input_tensor_b"]
    shapes = [each["$tensor"]["shape"] for each in shrunk["shrunk"]["arguments"].values()]
    assert max(size for shape in shapes for size in shape) <= 64
    assert all(len(shape) == 2 for shape in shapes)


@pytest.mark.torch
def test_the_test_that_is_written_fails_in_the_same_way(shrunk, tmp_path):
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", shrunk["file"])
    done = python(*words, "--optrove-board", "n150", cwd=tmp_path)
    assert done.returncode == 1
    assert shrunk["cause"].partition(":")[0].rstrip("0123456789 .") in done.stdout


def test_a_case_that_passes_is_an_error_with_advice(store):
    result = ask(store, placement_hash(RIGHT)[:12], "--board", "n150")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "there is no failure to shrink" in result.stderr
    assert "--board and --device" in result.stderr
