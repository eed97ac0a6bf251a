import pytest

from example_runs import EXAMPLES, replayed_well, run

pytestmark = [pytest.mark.ttnn, pytest.mark.torch]


def run_pytest(tmp_path, *options):
    options = ("--optrove-board", "n300", "-p", "no:cacheprovider", *options)
    return run(tmp_path, "pytest", str(EXAMPLES / "encoder"), "-q", *options)


def test_on_a_plain_mock_board_the_example_checks_specs_and_says_that_it_skips_pcc(tmp_path):
    done = run_pytest(tmp_path, "-rs")
    assert done.returncode == 0, done.stdout
    assert "6 passed, 6 skipped" in done.stdout
    assert "no PCC was computed" in done.stdout


def test_with_the_shadow_the_example_compares_with_torch_and_every_case_replays(tmp_path):
    trove = ("--optrove-store", str(tmp_path / "trove.db"))
    done = run_pytest(tmp_path, "--optrove-shadow", *trove)
    assert done.returncode == 0, done.stdout
    assert "12 passed" in done.stdout
    assert "op calls computed, 0 without numbers" in done.stdout
    ops = {each["op"] for each in replayed_well(tmp_path, "n300")}
    assert {"ttnn.linear", "ttnn.layer_norm", "ttnn.softmax"} <= ops


WRONG_WEIGHT = """
from dataclasses import replace

import pytest

@pytest.fixture(autouse=True)
def wrong_weight(monkeypatch):
    import encoder

    load = encoder.load

    def spoiled(weights, *others):
        return load(replace(weights, up=replace(weights.up, weight=-weights.up.weight)), *others)

    monkeypatch.setattr(encoder, "load", spoiled)
"""


def test_with_the_shadow_a_wrong_weight_is_found_out(tmp_path):
    (tmp_path / "wrong_weight.py").write_text(WRONG_WEIGHT)
    plugin = ("-p", "wrong_weight", "-o", f"pythonpath={tmp_path}")
    done = run_pytest(tmp_path, "--optrove-shadow", "-k", "pcc", *plugin)
    assert done.returncode == 1, done.stdout
    assert "6 failed" in done.stdout
