import json
import sys

import pytest
from click.testing import CliRunner

from optrove.cli.configure import COMMANDS
from optrove.cli.main import Commands
from optrove.runconfig import LinearConfig, MulConfig, RMSNormConfig, save_config, save_configs

ROOT = Commands(commands={command.name: command for command in COMMANDS})


@pytest.fixture
def pair(tmp_path):
    def modes(memory):
        mlp = {"w1": LinearConfig(memory_config=memory, transpose_b=True), "mul": MulConfig()}
        layers = {
            "0-60": {"norm": RMSNormConfig(epsilon=1e-6)},
            "0-2": {"mlp": mlp},
            "3-60": {"experts": {"0-7": mlp}},
        }
        return {"model": {"layers": layers}, "mode": memory}

    file = tmp_path / "pair.json"
    save_configs({"prefill": modes("DRAM"), "decode": modes("L1")}, file)
    return file


def ask(*words, exit_code=0):
    result = CliRunner().invoke(ROOT, ["config", *map(str, words)])
    assert result.exit_code == exit_code, result.output
    return result


def test_a_config_is_shown_as_a_tree_with_its_ranges(pair):
    lines = ask("show", pair).stdout.splitlines()
    tree = lines[lines.index(f"{pair} prefill:") + 1 :]
    assert tree[1:10] == [
        "  model",
        "    layers",
        "      0-2",
        "        mlp",
        "          mul: MulConfig()",
        "          w1: LinearConfig(memory_config='DRAM', transpose_b=True)",
        "      0-60",
        "        norm: RMSNormConfig(epsilon=1e-06)",
        "      3-60",
    ]


def test_show_for_machines_has_every_entry_once(pair):
    rows = json.loads(ask("show", pair, "--json").stdout)
    linear = [row for row in rows if "LinearConfig" in json.dumps(row) and row["mode"] == "decode"]
    assert [row["paths"] for row in linear] == [
        ["model.layers.0-2.mlp.w1", "model.layers.3-60.experts.0-7.w1"]
    ]
    assert linear[0]["entries"] == 3 + 58 * 8


def test_prefill_and_decode_are_compared_entry_by_entry(pair):
    answer = ask("diff", pair, exit_code=1).stdout
    assert "model.layers.3-60.experts.0-7.w1" in answer
    assert "  memory_config: 'DRAM' -> 'L1'" in answer
    assert "norm" not in answer


def test_layers_are_compared_with_each_other(pair):
    assert "are equal" in ask("diff", pair, "--layers", 3, 7).stdout
    (first, _) = json.loads(ask("diff", pair, "--layers", 2, 3, "--json", exit_code=1).stdout)
    assert not first["equal"]
    paths = [path for change in first["changes"] for path in change["paths"]]
    assert "mlp.w1" in paths
    ask("diff", pair, "--paths", "model.layers.3.experts.0", "model.layers.9.experts.5")


def test_two_files_are_compared(tmp_path):
    files = [tmp_path / name for name in ("old.json", "new.json")]
    for file, dim in zip(files, (1, 2), strict=True):
        save_config({"w1": LinearConfig(activation=str(dim))}, file)
    assert "activation: '1' -> '2'" in ask("diff", *files, exit_code=1).stdout
    assert "are equal" in ask("diff", files[0], files[0]).stdout


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--layers", "3", "99"], "has nothing at 'model.layers.99'"),
        (["--paths", "a", "b"], "has nothing at 'a'"),
    ],
)
def test_what_is_not_there_cannot_be_compared(pair, words, answer):
    assert answer in ask("diff", pair, *words, exit_code=2).stderr


def test_a_single_config_has_nothing_to_be_compared_with(tmp_path):
    save_config({"w1": LinearConfig()}, tmp_path / "one.json")
    assert "--layers A B" in ask("diff", tmp_path / "one.json", exit_code=2).stderr
    answer = ask("diff", tmp_path / "one.json", "--layers", 0, 1, exit_code=2).stderr
    assert "no numbered layers" in answer


@pytest.fixture
def without_ttnn(monkeypatch):
    """Keep ttnn from being imported, which other tests of this process want on a mock board."""
    monkeypatch.setitem(sys.modules, "loguru", None)


@pytest.mark.usefixtures("without_ttnn")
def test_bad_ranges_and_bad_files_are_named(tmp_path):
    file = tmp_path / "bad.json"
    save_config({"0-3": {"w1": LinearConfig()}, "2": {"w1": LinearConfig()}}, file)
    answer = ask("check", file, exit_code=1)
    assert '2.w1: given by "0-3" and by "2"' in answer.stdout
    assert "were not checked against its signatures" in answer.stderr
    assert 'given by "0-3"' in ask("show", file, exit_code=2).stderr
    file.write_text("{")
    assert "not JSON" in ask("check", file, exit_code=2).stderr
