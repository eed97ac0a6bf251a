import csv
import json
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.ttnn

UNTOUCHED_TEST = """
import ttnn


def test_add():
    device = ttnn.open_device(device_id=0)
    a = ttnn.zeros([32, 64], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    assert tuple((a + a).shape) == (32, 64)
    ttnn.close_device(device)


def test_mesh():
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
    assert mesh.get_num_devices() == 2
    ttnn.close_mesh_device(mesh)
"""

CONFTEST = """
import ttnn  # as tt-metal's own conftest does
"""


@pytest.fixture
def project(pytester):
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_model=UNTOUCHED_TEST)
    return pytester


def test_an_untouched_test_runs_on_the_mock_board(project):
    result = project.runpytest_subprocess("--optrove-board", "n300")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["optrove: mock board n300, *numbers mean nothing*"])
    assert not (project.path / "generated").exists()


@pytest.mark.torch
@pytest.mark.parametrize("shadow", [False, True])
def test_comparisons_on_a_plain_mock_board_are_void(pytester, shadow):
    pytester.makepyfile(
        """
        import torch, ttnn
        from optrove.metrics import assert_with_pcc

        def test_sum():
            device = ttnn.open_device(device_id=0)
            ones = ttnn.ones([32, 32], ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
            output = ttnn.to_torch(ones + ones).float()
            assert_with_pcc(output, output, 0.99)
            ttnn.close_device(device)
        """
    )
    options = ["--optrove-board", "n150", "--results-csv", "results.csv", "--junitxml", "junit.xml"]
    result = pytester.runpytest_subprocess(*options, *["--optrove-shadow"] * shadow)
    result.assert_outcomes(passed=1)
    (row,) = csv.DictReader((pytester.path / "results.csv").read_text().splitlines())
    (metric,) = json.loads(row["metrics_json"])
    ran_on = "shadow n150" if shadow else "mock n150"
    assert row["ran_on"] == ran_on
    assert f'name="ran_on" value="{ran_on}"' in (pytester.path / "junit.xml").read_text()
    assert (metric["passed"], metric.get("void", False)) == (
        (True, False) if shadow else (None, True)
    )
    assert ("1 comparisons are void" in result.stdout.str()) is not shadow


def test_a_plugin_that_imports_ttnn_early_is_told_what_works(pytester):
    pytester.makepyfile(early="import ttnn", test_one="def test_one(): pass")
    options = ("--optrove-board", "n150")
    result = pytester.runpytest_subprocess("-p", "early", *options)
    result.stderr.fnmatch_lines(["*name the plugin in pytest_plugins of a conftest.py*"])
    pytester.makeconftest("pytest_plugins = ['early']")
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=1)


def test_the_board_can_come_from_the_environment(project, monkeypatch):
    monkeypatch.setenv("OPTROVE_BOARD", "p300")
    result = project.runpytest_subprocess()
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["optrove: mock board p300*"])


def test_it_works_under_xdist(project):
    result = project.runpytest_subprocess("--optrove-board", "n300", "-n", "2")
    result.assert_outcomes(passed=2)


@pytest.mark.torch
def test_numbers_are_counted_over_all_processes_of_xdist(pytester):
    test = """
        import ttnn, torch, pytest

        @pytest.mark.parametrize("n", range(4))
        def test_double(n):
            device = ttnn.open_device(device_id=0)
            ones = ttnn.from_torch(
                torch.ones(32, 32), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device
            )
            assert torch.all(ttnn.to_torch(ttnn.add(ones, ones)) == 2)
            ttnn.close_device(device)
    """
    pytester.makepyfile(test)
    options = ("--optrove-board", "n150", "--optrove-shadow")
    alone = pytester.runpytest_subprocess(*options)
    alone.assert_outcomes(passed=4)
    (line,) = [line for line in alone.outlines if "op calls computed" in line]
    assert not line.startswith("0 ")
    spread = pytester.runpytest_subprocess(*options, "-n", "2")
    spread.assert_outcomes(passed=4)
    assert line in spread.outlines


@pytest.mark.torch
def test_a_run_names_the_calls_that_hardware_numerics_do_not_model(pytester):
    test = """
        import ttnn, torch

        def test_two():
            device = ttnn.open_device(device_id=0)
            half = ttnn.from_torch(
                torch.rand(32, 32), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device
            )
            ttnn.var(ttnn.transpose(ttnn.exp(half), 0, 1), -1)
            for width in (64, 96):
                row = ttnn.from_torch(
                    torch.rand(32, width), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device
                )
                ttnn.layer_norm(row)
            ttnn.close_device(device)
    """
    pytester.makepyfile(test)
    options = ("--optrove-board", "n150", "--optrove-shadow")
    line = "not modeled by hardware numerics, computed in float32 and rounded once"
    outside = "1 modeled calls lie outside of the forms that agreed with the kernels"
    ideal = pytester.runpytest_subprocess(*options)
    assert line not in ideal.stdout.str()
    assert "lie outside" not in ideal.stdout.str()
    for more in ((), ("-n", "2")):
        done = pytester.runpytest_subprocess(*options, "--optrove-numerics", "hardware", *more)
        assert f"{line}: 1 x ttnn.var" in done.stdout.str()
        assert f"{outside}: 1 x ttnn.layer_norm" in done.stdout.str()


@pytest.mark.torch
def test_a_replay_says_which_calls_lie_outside_of_what_was_compared(pytester):
    test = """
        import ttnn, torch

        def test_two():
            device = ttnn.open_device(device_id=0)
            for width in (64, 96):
                row = ttnn.from_torch(
                    torch.rand(32, width), ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device
                )
                ttnn.layer_norm(row)
            ttnn.close_device(device)
    """
    pytester.makepyfile(test)
    pytester.runpytest_subprocess("--optrove-board", "n150", "--optrove-store", "trove.db")
    replay = (sys.executable, "-m", "optrove", "replay", "ttnn.layer_norm", "--store", "trove.db")
    replay = (*replay, "--all", "--board", "n150", "--device", "shadow")
    note = "1x hardware numerics model this call, but its form was not compared"
    assert note not in pytester.run(*replay).stdout.str()
    assert note in pytester.run(*replay, "--numerics", "hardware").stdout.str()


@pytest.mark.skipif(Path("/dev/tenstorrent").exists(), reason="here is a real board to be found")
def test_without_the_option_ttnn_looks_for_real_devices(project):
    result = project.runpytest_subprocess("-k", "test_add")
    outcomes = result.parseoutcomes()
    assert outcomes == {"failed": 1, "deselected": 1}
    assert "optrove:" not in result.stdout.str()
    traced = project.runpytest_subprocess("-k", "test_add", "--optrove-store", "trove.db")
    assert traced.parseoutcomes() == outcomes
    traced.stdout.fnmatch_lines(["hint: no Tenstorrent device was found*--optrove-board NAME*"])
    assert "patching.py" not in traced.stdout.str()
