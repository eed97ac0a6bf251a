"""Record what optrove answers, and compare two recordings.

A safety net for refactoring. It uses the front doors only (commands, pytest options, public Python
names, web pages), so that modules may move:

    python tools/characterize.py prepare TROVES        make fixed troves and other inputs, once
    python tools/characterize.py record TROVES BEFORE  run every command on copies of them
    ... change the code ...
    python tools/characterize.py record TROVES AFTER
    python tools/characterize.py compare BEFORE AFTER  exit code 1 if an answer differs

A recording has four parts. ``json`` (exit codes, ``--json`` output, JSON of web pages, options in
help texts), ``files`` (exports, generated tests) and ``schema`` (of databases) have to stay equal.
``text`` (output for people, HTML) may be improved: its differences are counted, and shown with
``--text``.

Commands that only read or write troves are run by forks of a process that has their modules loaded,
which takes a fraction of the time; all others are processes of their own. What is recorded is the
optrove that is installed for the Python that runs this.

Times, durations, process ids, ids of new runs and paths are replaced by placeholders. Floats of
new runs are rounded to 5 digits. What was in the fixed troves is kept as it is.

``prepare --extra DIR`` adds files: troves (``*.db``), on which all queries and pages are tried, and
master files (``*.json``), which are imported.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import gc
import io
import json
import os
import re
import runpy
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT: Final = Path(__file__).resolve().parents[1]
BIN: Final = Path(sys.executable).parent
SOURCE: Final = Path(str(find_spec("optrove").origin)).parents[1]  # type: ignore[union-attr]
EXAMPLES: Final = ("encoder", "llama", "torch_encoder")
STRICT: Final = ("json", "files", "schema")
WORKERS: Final = 2
TIMEOUT: Final = 300
# What starts processes of its own is not run in a fork.
APART: Final = (
    *("trace", "replay", "check-board", "audit-goldens", "sweep", "shrink", "vectors", "doctor"),
    *("python", "pytest"),
)
LOADED: Final = re.compile(r"(optrove|click|rich|sqlite3|sqlalchemy|jinja2|cattrs?|attrs?)\b")

# ------------------------------------------------------------------------------------------------
# Programs that are traced, swept and run. `prepare` writes them beside the troves.

PROGRAMS: Final = {
    "test_mlp.py": """
import pytest
import torch
import ttnn

CORES = 8


def mlp(x, up, down):
    shape = (1, 1, x.shape[-2], up.shape[-1])
    grid = ttnn.CoreGrid(x=CORES, y=1)
    sharded = ttnn.create_sharded_memory_config(shape, grid, ttnn.ShardStrategy.WIDTH)
    hidden = ttnn.to_memory_config(ttnn.linear(x, up), sharded)
    return ttnn.linear(ttnn.gelu(hidden), down, memory_config=ttnn.DRAM_MEMORY_CONFIG)


@pytest.mark.parametrize("rows", [32, 128])
def test_mlp(rows):
    torch.manual_seed(0)
    x = torch.randn(1, 1, rows, 256)
    up, down = torch.randn(256, 1024) / 16, torch.randn(1024, 256) / 32
    device = ttnn.open_device(device_id=0)

    def load(tensor, dtype):
        return ttnn.from_torch(tensor, dtype=dtype, layout=ttnn.TILE_LAYOUT, device=device)

    output = mlp(load(x, ttnn.bfloat16), load(up, ttnn.bfloat8_b), load(down, ttnn.bfloat8_b))
    result = ttnn.to_torch(output).float().flatten()
    ttnn.close_device(device)
    expected = (torch.nn.functional.gelu(x @ up) @ down).flatten()
    assert torch.corrcoef(torch.stack([result, expected]))[0, 1] > 0.999
""",
    "test_outcomes.py": """
import pytest
import ttnn

from optrove.metrics import assert_with_pcc


@pytest.fixture(scope="module")
def device():
    device = ttnn.open_device(device_id=0)
    yield device
    ttnn.close_device(device)


@pytest.mark.parametrize("seq_len", [32, 64])
@pytest.mark.parametrize("mode", ["prefill", "decode"])
def test_add(device, mode, seq_len, record_metric, record_property):
    x = ttnn.ones([1, 1, seq_len, 64], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    ttnn.add(x, x)
    ttnn.multiply(x, 2.0)
    assert_with_pcc([1.0, 2.0, 3.0], [1.0, 2.0, 3.001], 0.999)
    record_metric("tokens_per_second", 31.5, threshold=30, passed=True)
    record_property("pcc", 0.75)


def test_failure(device):
    x = ttnn.ones([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    assert ttnn.add(x, 1.0).shape == (1, 1)


def test_refused(device):
    x = ttnn.ones([64, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    ttnn.matmul(x, x)


@pytest.mark.skip(reason="not today")
def test_skipped():
    pass
""",
    "one_add.py": """
import sys

import ttnn

device = ttnn.open_device(device_id=0)
x = ttnn.ones([1, 1, 32, 64], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
y = ttnn.add(x, x)
ttnn.deallocate(y)
ttnn.close_device(device)
print("arguments", sys.argv[1:])
""",
    "refused.py": """
import ttnn

device = ttnn.open_device(device_id=0)
where = ttnn.L1_MEMORY_CONFIG
x = ttnn.ones([1, 1, 64, 32], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, where)
try:
    ttnn.matmul(x, x, memory_config=where, dtype=ttnn.bfloat16)
except RuntimeError:
    print("refused")
""",
    "killed.py": """
import os
import signal

import ttnn


class Killer:
    def __index__(self):
        os.kill(os.getpid(), signal.SIGKILL)


device = ttnn.open_device(device_id=0)
x = ttnn.zeros([1, 1, 64, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
ttnn.sum(ttnn.relu(x), dim=Killer())
""",
    "torch_script.py": """
import torch

x = torch.arange(12, dtype=torch.float32).reshape(3, 4)
for _ in range(3):
    x = torch.nn.functional.relu(x @ x.T @ x - 1.0)
torch.softmax(x, dim=-1)
torch.cat([x, x.to(torch.bfloat16).float()])
""",
    "sweeps/my_gelu.py": """
import torch
import ttnn

from optrove.metrics import check_with_pcc
from optrove.sweep import MasterConfigLoader, unpack_traced_config

parameters = {
    "model_traced": MasterConfigLoader().get_suite_parameters("gelu"),
    "other_dtypes": {
        "shape": [(1, 1, 32, 1024), (1, 1, 64, 31)],
        "dtype": [ttnn.bfloat16, ttnn.bfloat8_b],
    },
    "xfail_threshold": {"shape": [(1, 1, 32, 32)], "dtype": [ttnn.bfloat16], "limit": [2.0]},
    "wrong": {"shape": [(1, 1, 32, 32), None], "dtype": [ttnn.bfloat16], "limit": [2.0]},
}


def invalidate_vector(vector):
    return vector.get("shape") == (1, 1, 64, 31), "odd width"


def run(shape=None, dtype=None, limit=0.999, traced_config_name=None, *, device):
    layout, memory = ttnn.TILE_LAYOUT, ttnn.DRAM_MEMORY_CONFIG
    if traced_config_name:
        shape, dtype, layout, memory, _ = unpack_traced_config(traced_config_name)
    x = torch.randn(shape)
    tensor = ttnn.from_torch(x, dtype=dtype, layout=layout, device=device, memory_config=memory)
    result = ttnn.to_torch(ttnn.gelu(tensor))
    return check_with_pcc(torch.nn.functional.gelu(x), result, limit)
""",
    "make_configs.py": """
from pathlib import Path

import numpy as np

import optrove

with optrove.mock_board("n300"):
    import ttnn
    from optrove.runconfig import (
        FromWeight,
        LinearConfig,
        MulConfig,
        RMSNormConfig,
        Weight,
        column_sharded,
        create_run_config,
        save_config,
        save_configs,
        save_weights,
    )

    def tree(memory, epsilon):
        weight = FromWeight(shape=(64, 128), sharding=column_sharded())
        return {
            "layers": {
                "0-3": {"norm": RMSNormConfig(epsilon=epsilon)},
                "0-1": {"w1": LinearConfig(input_tensor_b=weight, memory_config=memory)},
                "2-3": {"mul": MulConfig(input_tensor_a_activations=[ttnn.UnaryOpType.SILU])},
            }
        }

    prefill = tree(ttnn.DRAM_MEMORY_CONFIG, 1e-6)
    decode = tree(ttnn.L1_MEMORY_CONFIG, 1e-5)
    save_configs({"prefill": prefill, "decode": decode}, Path("pair.json"))
    save_config({"a": {"0-3": MulConfig(), "3": MulConfig()}}, Path("overlap.json"))
    save_config({"a": {"use_multicore": {"no_such": 1}}}, Path("plain.json"))
    mesh = ttnn.open_mesh_device(ttnn.MeshShape(1, 2))
    array = np.arange(64 * 128, dtype=np.float32).reshape(64, 128)
    saved = save_weights(
        {"w1": {"input_tensor_b": Weight(array, column_sharded())}}, Path("weights"), mesh
    )
    run_config = create_run_config(prefill, {"layers": {"0-1": saved}}, mesh)
    print(sorted(run_config["layers"]), sorted(run_config["layers"][0]["w1"]))
    ttnn.close_mesh_device(mesh)
""",
    "api.py": """
import importlib
import inspect
import json


def signature(thing):
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return None
    return [
        (each.name, each.kind.name, None if each.default is each.empty else repr(each.default))
        for each in parameters
    ]


def members(thing):
    if not inspect.isclass(thing):
        return None
    return [name for name in dir(thing) if not name.startswith("_")]


def described(module):
    module = importlib.import_module(module)
    things = {name: getattr(module, name) for name in sorted(module.__all__)}
    return {
        name: [type(thing).__name__, signature(thing), members(thing)]
        for name, thing in things.items()
        if name != "__version__"
    }


MODULES = ("optrove", "optrove.sweep", "optrove.runconfig", "optrove.metrics")
print(json.dumps({name: described(name) for name in MODULES}))
""",
    "serializing.py": """
import json

import optrove

with optrove.mock_board("n150"):
    import torch
    import ttnn

    device = ttnn.open_device(device_id=0)
    grid = ttnn.CoreGrid(x=4, y=2)
    shape = (1, 1, 64, 128)
    sharded = ttnn.create_sharded_memory_config(shape, grid, ttnn.ShardStrategy.BLOCK)
    x = ttnn.ones(shape, dtype=ttnn.bfloat8_b, layout=ttnn.TILE_LAYOUT, device=device)
    values = {
        "plain": [None, True, 1, 1.5, float("nan"), "text", b"bytes", (1, 2), {3, 4}, {5: 6}],
        "complex": 1 + 2j,
        "slice": slice(1, 2),
        "sharded": sharded,
        "on device": x,
        "moved": ttnn.to_memory_config(x, sharded),
        "grid": grid,
        "symbols": [ttnn.bfloat16, ttnn.TILE_LAYOUT, ttnn.UnaryOpType.SILU],
        "compute": ttnn.init_device_compute_kernel_config(
            device.arch(), math_fidelity=ttnn.MathFidelity.HiFi2, fp32_dest_acc_en=True
        ),
        "torch": torch.zeros(2, 3, dtype=torch.bfloat16),
        "dtype": torch.int64,
        "unknown": object,
    }
    answers = {}
    for name, value in values.items():
        jsonable = optrove.to_jsonable(value)
        back = optrove.to_jsonable(optrove.from_jsonable(jsonable))
        answers[name] = [jsonable, back == jsonable]
    with optrove.trace("api.db", model="api") as traced:
        assert optrove.is_tracing_enabled()
        ttnn.add(x, x)
    answers["trace"] = sorted(name for name in dir(traced) if not name.startswith("_"))
    ttnn.close_device(device)
print(json.dumps(answers))
""",
    "loading.py": """
import json

import optrove

with optrove.mock_board("n300"):
    from optrove.sweep import MasterConfigLoader, unpack_traced_config, unpack_traced_tensors

    loader = MasterConfigLoader()
    answers = {}
    for op in ("gelu", "linear", "to_memory_config", "no_such_op"):
        names = loader.get_suite_parameters(op).get("traced_config_name", [])
        answers[op] = [[name, repr(unpack_traced_tensors(name))] for name in names]
        answers[f"{op} all"] = repr(sorted(loader.get_suite_parameters(op, all_cases=True)))
    answers["one"] = repr(unpack_traced_config(answers["gelu"][0][0]))
print(json.dumps(answers))
""",
    "metrics.py": """
import json

import torch

from optrove import metrics

a, b = torch.arange(8.0), torch.arange(8.0) + torch.tensor([0.0, 0.5] * 4)
answers = {
    name: repr(getattr(metrics, name)(a, b)) for name in ("allclose", "max_abs_error", "pcc", "ulp")
}
answers["check"] = repr(metrics.check_with_pcc(a, b, 0.999))
answers["same"] = repr(metrics.check_with_pcc(a, a, 0.999))
print(json.dumps(answers))
""",
}

# ------------------------------------------------------------------------------------------------
# How the fixed troves are made. Each line is a command, run in the directory of the troves.

PREPARE: Final = """
optrove trace test_mlp.py --board n300 --shadow --model mlp --store mlp.db --keep
optrove trace test_mlp4.py --board n300 --shadow --model mlp-on-4-cores --store mlp.db
optrove trace test_outcomes.py --board n150 --model outcomes --store mlp.db
optrove trace refused.py --board n150 --store mlp.db
optrove trace one_add.py --board n150 --store one.db --jsonl one.jsonl --params-dir one-params
optrove trace torch_script.py --backend torch --store torch.db
optrove replay * --all --device shadow --board n300 --model mlp --store mlp.db
optrove replay * --all --device shadow --board n300 --model mlp --seed 1 --store mlp.db
optrove check-board p150 --store mlp.db
optrove sweep sweeps/my_gelu.py --board n300 --store mlp.db
optrove sweep linear gelu matmul --board n300 --device shadow --store mlp.db
optrove trace encoder --board n300 --shadow --model encoder --store models.db
optrove trace llama --board n300 --model llama --store models.db
optrove trace torch_encoder --backend torch --model torch-encoder --store models.db
optrove replay * --all --memory SHARDED --device shadow --store models.db
optrove check-board n150 --store models.db
optrove sweep --board p150 --budget 60s --store models.db
optrove export mlp-master.json --store mlp.db
optrove export mlp.txt --format text --store mlp.db
optrove export mlp.jsonl --format jsonl --store mlp.db
optrove export mlp-params --format params --run {trace4} --store mlp.db
optrove import mlp-master.json --store imported.db
python make_configs.py
"""

# ------------------------------------------------------------------------------------------------
# What is recorded. A line is a command; "optrove" is left out. It is run twice, for people and
# with --json; a line that begins with "json:" or "text:" only so. Names in braces are ids of the
# trove that the scenario is about.

HELP: Final = (
    *("trace", "import", "ops", "show", "who", "diff", "runs", "models", "serve", "replay"),
    *("check-board", "check-release", "audit-goldens", "sweep", "vectors", "results", "report"),
    *("testgen", "shrink", "export", "merge", "rm", "push", "pull", "roles", "config"),
    *("config show", "config diff", "config check", "demo", "boards", "doctor"),
)

# Asked of every trove: nothing here needs to know what is in it.
ANY_TROVE: Final = """
ops
ops --all-ops
ops --nested --all-ops
ops --model no-such-model
ops --board n300
models
models --all-ops --nested
runs
runs --all-ops --nested
show * --limit 5
show * --limit 200 --all-ops --nested
show * --families --limit 30
show * --memory SHARDED
show * --dtype bfloat16 --layout TILE --limit 5
show no_such_op
who *
who * --by dtype
who * --by layout
who * --by memory
who * --by mesh
who * --by shape
who * --by model
who * --by source
who * --by test
who * --by board
who * --by config
results
json: export out/master.json
json: export out/master-all.json --scrub
json: export out/all.txt --format text
json: export out/all.jsonl --format jsonl
json: export out/superset --format superset
text: report -o out/report.html
text: results --junit out/results.xml --markdown out/results.md
json: results --export out/results_export
json: results --export out/results.json
json: testgen * --limit 3 -o out/tests
json: vectors * -o out/vectors.json
sweep --dry-run
json: merge trove.db -o merged.db
json: push pushed.db
json: diff trove.db merged.db
json: diff trove.db pushed.db
json: diff merged.db pushed.db --cases-only
"""

MLP: Final = """
show linear
show linear 1
show ttnn::gelu
show {case_gelu}
text: show gelu 1 --svg out/pictures
show * --argument input_tensor_b --dtype bfloat8_b
show * --memory L1_WIDTH_SHARDED
show * --shape 1x1x*x256
show linear --model mlp-on-4-cores
show linear --run {trace4}
show linear --mesh 1x1
show lin
who linear
who linear --by memory --argument input_tensor_b
who {case_gelu}
who gelu --model mlp --board n300
who linear --by no_such_property
diff model:mlp model:mlp-on-4-cores
diff model:mlp model:mlp-on-4-cores --brief
diff model:mlp model:mlp-on-4-cores --cases-only --all-ops --nested
diff run:{trace4} run:{trace3}
diff mlp-master.json trove.db
diff mlp.txt mlp.jsonl
diff mlp-master.json mlp.txt
diff model:mlp model:mlp
diff no-such-thing trove.db
ops --run {trace4}
ops --run ffffffff
ops --store no-such.db
results {sweep}
results {sweep2}
results {replay}
results {replay2} --compare {replay3}
results {sweep} --compare {replay2}
results {trace}
text: results {sweep2} --junit out/sweep2.xml --markdown out/sweep2.md
json: results {sweep2} --export out/sweep2
check-release {replay2} {replay3}
check-release {replay} {sweep}
check-release {replay2} {sweep}
check-release {sweep} mlp-replay.json
text: report {sweep2} -o out/sweep2.html
text: report {replay2} --compare {replay3} -o out/compared.html
text: report {trace4} -o out/trace.html
text: report {trace2} -o out/outcomes.html
text: report
text: report --compare no-such-run
json: export out/model.json --model mlp
json: export out/op.json --op gelu
json: export out/board.json --board n150
json: export out/run.txt --format text --run {trace4}
json: export out/run.jsonl --format jsonl --run {trace4}
json: export out/params --format params --run {trace4}
json: export out/scrubbed.jsonl --format jsonl --scrub
json: export out/installed --format superset --install
text: export - --format text --op gelu
json: export out/none.json --op no_such_op
json: testgen linear gelu matmul -o out/tests-of-ops
json: testgen linear gelu -o out/standalone --standalone --limit 1
json: testgen {case_gelu} -o out/tests-of-case
text: testgen gelu -o out/tests-text
json: testgen no_such_op -o out/no-tests
vectors gelu
vectors linear --model mlp --argument input_tensor_a --dtype bfloat16
vectors linear --all-cases
vectors gelu --randomize 7
json: vectors linear --dump-file
json: vectors gelu -o out/gelu.json
sweep linear gelu --dry-run
sweep * --dry-run --all-ops --nested
sweep --dry-run --randomize 3 --recorded-on n300
sweep ttnn.linear --dry-run --vector-source vectors_export
sweep --resume --dry-run
sweep no_such_op --dry-run
text: roles
text: roles --reader somebody --writer somebody_else
boards
boards --no-such-option
no-such-command
text: --version
text: sweep gelu --engine no_such_engine
"""

IMPORTS: Final = """
json: import mlp-master.json mlp.txt --store a.db
json: import mlp.jsonl --store b.db
json: import mlp-params --store c.db
json: import one.jsonl one-params --store d.db
json: import mlp.db.journals --store e.db
json: import mlp.db --store f.db
text: import mlp-master.json --store g.db
json: import mlp-master.json --strict --store h.db
json: import test_mlp.py --store i.db
json: import no-such-file --store i.db
json: trace --from mlp.db.journals --store j.db --jsonl out/from.jsonl
json: trace --from one.jsonl --store k.db
text: trace --from mlp.db.journals --store l.db --all-ops --nested
ops --store a.db
ops --store b.db
ops --store c.db --all-ops --nested
ops --store d.db --all-ops --nested
ops --store e.db
runs --store e.db
show linear --store c.db
diff a.db f.db
diff e.db j.db
diff mlp.db e.db --brief
json: export out/a.json --store a.db
json: export out/b.json --store b.db
json: export out/c.json --store c.db
json: export out/e.jsonl --format jsonl --store e.db
json: merge a.db b.db one.db torch.db -o merged.db
text: merge a.db one.db -o merged-text.db
json: merge no-such.db -o merged-none.db
ops --store merged.db
json: push pushed.db --store mlp.db
json: push pushed.db --store mlp.db
json: push scrubbed.db --scrub --store mlp.db
runs --store scrubbed.db
json: pull one.db --store pushed.db
json: pull torch.db --store pulled.db
text: push pushed-text.db --store one.db
text: pull one.db --store pulled-text.db
runs --store pushed.db
diff mlp.db pushed.db
json: rm {trace} {replay} --store pushed.db
text: rm {sweep} --store pushed.db
json: rm ffffffff --store pushed.db
runs --store pushed.db
ops --store pushed.db
"""

CONFIGS: Final = """
config show pair.json
config show pair.json plain.json
config diff pair.json
config diff pair.json plain.json
config diff pair.json --layers 0 2
config diff pair.json --paths layers.0 layers.2
config diff pair.json --paths layers.0-1 layers.2-3
config diff plain.json plain.json
config check pair.json
config check pair.json --weights weights
config check overlap.json plain.json
config check test_mlp.py
"""

PYTHON: Final = """
json: python api.py
json: python serializing.py
json: python metrics.py
ops --store api.db --all-ops
runs --store api.db
"""

TRACE: Final = """
json: trace one_add.py --board n150 --store a.db -- x --y
text: trace one_add.py --board n150 --store b.db --model adder --sketch --jsonl out/one.jsonl \
    --all-ops
json: trace one_add.py --board n150 --shadow --store c.db --params-dir out/params --with-values \
    --sketch
json: trace killed.py --board n150 --store d.db --keep
json: trace refused.py one_add.py --board t3k --store e.db --include ttnn.matmul,ones --nested
json: trace torch_script.py --store f.db --jsonl out/torch.jsonl --sketch
json: trace one_add.py --board n150 --store g.db --exclude *
json: trace no-such-file.py --board n150 --store h.db
ops --store a.db --all-ops --nested
runs --store d.db
show * --store f.db
who * --store e.db
json: export out/traced.json --store a.db
json: export out/torch.txt --format text --store f.db
text: report -o out/traced.html --store a.db
"""

PYTEST: Final = """
text: pytest test_outcomes.py --optrove-board n150 --ops-jsonl out/ops.jsonl --results-csv \
    out/results.csv --optrove-store a.db
text: pytest test_outcomes.py --optrove-board n150 -k prefill --trace-params \
    --trace-params-keep --trace-params-with-values --optrove-shadow
text: pytest test_mlp.py --optrove-board n300 --optrove-shadow --optrove-store b.db \
    --optrove-include linear,gelu --optrove-model tiny
text: pytest torch_encoder -k padding --optrove-backend torch --optrove-store c.db --ops-jsonl \
    out/torch.jsonl
text: pytest test_mlp.py --optrove-model alone
text: pytest test_outcomes.py --collect-only --trace-params-keep
json: trace test_outcomes.py --board n150 --store d.db --jsonl out/traced.jsonl -- -k decode
text: trace test_mlp.py torch_encoder/test_torch_encoder.py::test_padding_is_not_seen --board n150 \
    --store e.db
ops --store a.db --all-ops --nested
runs --store a.db
ops --store b.db
show * --store c.db --limit 5
who * --by test --store d.db
"""

REPLAY: Final = """
replay gelu --board n300 --device shadow --jobs 1
json: replay * --all --memory SHARDED --device mock --jobs 1
json: replay {case_gelu} --board p150 --seed 3 --jobs 1
json: replay * --all --model outcomes --device shadow --recorded-on n150 --jobs 1
json: replay --jsonl one.jsonl --all --jobs 1
json: replay --jsonl mlp.jsonl --index 2 --board n300 --jobs 1
json: replay no_such_op
json: replay gelu --device hw
runs
"""

CHECKS: Final = """
json: check-board n150 --model mlp --adapt --jobs 1
text: check-board t3k --op matmul --jobs 1
json: check-board no-such-board
json: audit-goldens gelu linear --cases 1 --board n300 --jobs 1
json: shrink {case_matmul} --board n150 --trials 40 -o out/shrunk
text: shrink {case_gelu} --board n300
json: doctor
"""

SWEEP: Final = """
json: vectors sweeps/my_gelu.py --board n300
json: vectors sweeps/my_gelu.py --board n300 --suite-name other_dtypes --dump-file
json: sweep sweeps/my_gelu.py --board n300 --jobs 1 --result-dest out/results_export
text: sweep gelu --board n300 --device shadow --jobs 1 --perf --measure-memory
json: sweep linear --board n150 --jobs 1 --model mlp --summary --randomize 5
json: sweep linear --board n150 --jobs 1 --model mlp --resume
json: sweep sweeps/my_gelu.py --board n300 --suite-name other_dtypes --vector-source \
    vectors_export --jobs 1
results
runs
json: python loading.py
"""

GOLDEN: Final = """
ops --all-ops --nested
runs
models
show * --all-ops --nested
results
json: export out/golden.jsonl --format jsonl
"""

PAGES: Final = """
/
/ops
/ops?search=lin
/ops?all_ops=yes&nested=yes
/ops?memory=L1_WIDTH_SHARDED
/ops?dtype=bfloat16&layout=TILE
/ops?outcome=passed
/ops?model=no-such-model
/ops?no_such=parameter
/op?name={op}
/op?name={op}&view=families
/op?name={op}&outcome=passed&nested=yes
/op?name=ttnn.no_such_op
/op
/case?id={case}
/case?id=ffffffffffff
/models
/models?search=m
/model?name={model}
/model?name=no-such-model
/runs
/runs?kind=trace
/runs?kind=replay&board=n150
/run?id={run}
/run?id={attempts}
/run?id={attempts}&outcome=passed
/run?id={traced}
/run?id={traced}&tests=failed
/run?id=ffffffff
/progress?run={sweep}
/memory?id={traced}
/compare?a={attempts}&b={attempts2}
/compare?a={traced}&b={run}
/boards
/boards?op={op}
/boards?device=mock
/static/script.js
/no-such-page
"""


# ------------------------------------------------------------------------------------------------
# Scenarios: commands that are run one after the other in a directory of their own.


@dataclass(frozen=True)
class Scenario:
    """Commands for a trove; fresh ones make runs, whose times and ids vary."""

    name: str
    lines: str
    trove: str = ""
    fresh: bool = False


@dataclass(frozen=True)
class Step:
    """One command as it is written in this file, and the words that are run."""

    line: str
    words: tuple[str, ...]
    as_json: bool

    @property
    def verb(self) -> str:
        """The command, under which its results are put."""
        return self.words[0].lstrip("-")

    def named(self, scenario: str) -> str:
        """Return a file name that says what was run."""
        slug = re.sub(r"[^\w.=]+", "-", self.line).strip("-")
        return f"{self.verb}/{scenario}.{slug[:120]}{'.json' if self.as_json else ''}"


@dataclass(frozen=True)
class Done:
    """What came out of a step."""

    step: Step
    exit_code: int
    stdout: str
    stderr: str


def scenarios(troves: Path) -> list[Scenario]:
    """Return all scenarios, the longest first, so that two workers end together."""
    help_lines = "\n".join(f"text: {name} --help" for name in ("", *HELP))
    fixed = [
        Scenario("sweep", SWEEP, "mlp.db", fresh=True),
        Scenario("pytest", PYTEST, "", fresh=True),
        Scenario("checks", CHECKS, "mlp.db", fresh=True),
        Scenario("replay", REPLAY, "mlp.db", fresh=True),
        Scenario("trace", TRACE, "", fresh=True),
        Scenario("imports", IMPORTS, "mlp.db", fresh=True),
        Scenario("python", PYTHON, "", fresh=True),
        Scenario("asked", MLP, "mlp.db"),
    ]
    every = [Scenario(path.stem, ANY_TROVE, path.name) for path in sorted(troves.glob("*.db"))]
    masters = sorted((troves / "masters").glob("*.json"))
    imported = "\n".join(
        f"json: import masters/{file.name} --store {file.stem}.db\n"
        f"show * --all-ops --nested --store {file.stem}.db\n"
        f"json: export out/{file.name} --store {file.stem}.db"
        for file in masters
    )
    golden = [
        Scenario(f"golden-{path.stem}", GOLDEN, path.name)
        for path in sorted((troves / "golden").glob("*.db"))
    ]
    return [
        *fixed,
        *every,
        *golden,
        Scenario("masters", imported, "", fresh=True),
        Scenario("config", CONFIGS),
        Scenario("help", help_lines),
    ]


def steps(lines: str, facts: Mapping[str, str]) -> Iterator[Step]:
    """Return the commands of a table of lines, for people and for machines."""
    for line in lines.strip().splitlines():
        kind = line[:4] if line[4:6] == ": " else ""
        rest = " ".join((line[6:] if kind else line).split())
        words = tuple(shlex.split(fill(rest, facts)))
        if kind != "json":
            yield Step(rest, words, as_json=False)
        if kind != "text":
            yield Step(rest, words, as_json=True)


def fill(text: str, facts: Mapping[str, str]) -> str:
    """Put the ids of a trove in place of their names."""
    return re.sub(r"\{(\w+)\}", lambda name: facts.get(name[1], f"no-{name[1]}"), text)


def command(step: Step) -> list[str]:
    """Return the command that a user would type; pytest and python have no --json."""
    first, *rest = step.words
    if first == "python":
        return [sys.executable, *rest]
    if first == "pytest":
        quiet = ("-p", "no:cacheprovider", "-p", "no:schemathesis", "--tb=line")
        return [str(BIN / "pytest"), *rest, *quiet]
    as_json = ["--json"] if step.as_json else []
    words = list(step.words)
    behind = words.index("--") if "--" in words else len(words)
    return [str(BIN / "optrove"), *words[:behind], *as_json, *words[behind:]]


def environment(home: Path, store: str = "") -> dict[str, str]:
    """Return a small environment that is the same on each run."""
    found = {
        "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "OPTROVE_CACHE": str(Path(tempfile.gettempdir()) / "optrove-characterize-cache"),
        "LANG": "C.UTF-8",
        "COLUMNS": "100",
        "OMP_NUM_THREADS": "1",
        "NO_COLOR": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return found | ({"OPTROVE_STORE": store} if store else {})


def run(step: Step, directory: Path, store: str = "") -> Done:
    """Run one step in a directory."""
    words, variables = command(step), environment(directory, store)
    runner = run_apart if step.verb in APART and "--dry-run" not in words else forked
    with tempfile.TemporaryDirectory() as name:
        files = (Path(name) / "stdout", Path(name) / "stderr")
        code = runner(words, directory, variables, files)
        out, err = (file.read_text(errors="replace") for file in files)
    return Done(step, code, out, err)


def run_apart(
    words: list[str], directory: Path, variables: dict[str, str], files: tuple[Path, Path]
) -> int:
    """Run a command as a process of its own, and return its exit code."""
    with files[0].open("w") as out, files[1].open("w") as err:
        process = subprocess.Popen(  # noqa: S603 - the commands above
            words,
            cwd=directory,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
        try:
            return process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            return -process.wait()


# ------------------------------------------------------------------------------------------------
# Forks

LOCAL: Final = threading.local()


def forked(
    words: list[str], directory: Path, variables: dict[str, str], files: tuple[Path, Path]
) -> int:
    """Run a command in a fork of this thread's server, and return its exit code."""
    order = {"words": words, "directory": str(directory), "variables": variables}
    server = _server()
    server.stdin.write(json.dumps({**order, "files": [str(file) for file in files]}) + "\n")
    server.stdin.flush()
    return int(server.stdout.readline())


def _server() -> Any:
    """Return the server of this thread, which ends with its standard input."""
    if not hasattr(LOCAL, "server"):
        LOCAL.server = subprocess.Popen(  # noqa: S603 - this file
            [sys.executable, str(Path(__file__).resolve()), "serve-forks"],
            env=environment(Path.home()),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    return LOCAL.server


def serve_forks() -> int:
    """Load the modules that commands load, then run a command in a fork for each line of stdin."""
    for name in modules_of_commands():
        import_module(name)
    gc.collect()
    gc.freeze()  # so that forks need not look at what is loaded
    for line in sys.stdin:
        child = os.fork()
        if not child:
            become(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return 0


def modules_of_commands() -> list[str]:
    """Return the modules that are loaded when some commands have been run."""
    script = (
        "import json, runpy, sys\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    sys.argv[1:] = words\n"
        "    try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "    except SystemExit: pass\n"
        "print(); print(json.dumps(list(sys.modules)))\n"
    ).replace("sys.argv[0]", repr(str(BIN / "optrove")))
    with tempfile.TemporaryDirectory() as name:
        done = subprocess.run(  # noqa: S603 - the script above
            [sys.executable, "-c", script, json.dumps(warm_up(Path(name)))],
            cwd=name,
            env=environment(Path(name)),
            capture_output=True,
            text=True,
            check=True,
        )
    return [name for name in json.loads(done.stdout.splitlines()[-1]) if LOADED.match(name)]


def warm_up(directory: Path) -> list[list[str]]:
    """Return commands that load most of what reading and writing troves needs."""
    (directory / "a.txt").write_text(json.dumps({"operations": {}, "metadata": {}}))
    asked = ("ops", "show *", "who *", "models", "runs", "results", "report", "diff a.db b.db")
    words = [line.split() for line in ("import a.txt --store a.db", *asked, "export b.json")]
    return [[*each, "--store", "a.db"] for each in words]


def become(order: Mapping[str, Any]) -> None:
    """Turn this fork into the process of a command; never returns."""
    os.chdir(order["directory"])
    os.environ.clear()  # noqa: TID251 - the command's own
    os.environ.update(order["variables"])  # noqa: TID251 - the command's own
    for number, file in enumerate(("/dev/null", *order["files"])):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY
        os.dup2(os.open(file, flags, 0o644), number)
    sys.argv = list(order["words"])
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.exit(0)


# ------------------------------------------------------------------------------------------------
# prepare


def prepare(troves: Path, extra: Path | None) -> int:
    """Make the fixed troves and everything else that commands are given."""
    troves.mkdir(parents=True)
    for name, text in PROGRAMS.items():
        file = troves / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text.lstrip())
    mlp = PROGRAMS["test_mlp.py"].lstrip()
    (troves / "test_mlp4.py").write_text(mlp.replace("CORES = 8", "CORES = 4"))
    for name in EXAMPLES:
        shutil.copytree(ROOT / "examples" / name, troves / name, ignore=ignored())
    for line in PREPARE.strip().splitlines():
        _prepared(line, troves)
    replayed = Step("", ("results", facts_of(troves, "mlp.db")["replay2"]), as_json=True)
    (troves / "mlp-replay.json").write_text(run(replayed, troves, "mlp.db").stdout)
    _add_golden(troves)
    if extra is not None:
        _add_extra(troves, extra)
    known = {path.name: facts_of(troves, path.name) for path in sorted(troves.glob("*.db"))}
    _write_json(troves / "facts.json", known)
    _write_json(troves / "places.json", installed())
    return 0


def installed() -> list[tuple[str, str]]:
    """Return where optrove is installed, with placeholders for these paths."""
    return [(str(BIN), "<bin>"), (str(SOURCE), "<src>")]


def _prepared(line: str, troves: Path) -> None:
    rest = line.removeprefix("optrove ")
    store = re.search(r"--store (\S+)", rest)
    facts = facts_of(troves, store[1]) if store and "{" in rest else {}
    words = tuple(shlex.split(fill(rest, facts)))
    began = time.monotonic()
    done = run(Step(rest, words, as_json=False), troves)
    print(f"{time.monotonic() - began:5.1f} s  exit {done.exit_code}  {line}", flush=True)
    if done.exit_code > 1:
        raise SystemExit(done.stdout + done.stderr)


def _add_golden(troves: Path) -> None:
    folder = troves / "golden"
    folder.mkdir()
    for dump in sorted((ROOT / "tests" / "golden").glob("*.sql")):
        with closing(sqlite3.connect(folder / f"{dump.stem}.db")) as database:
            database.executescript(dump.read_text())


def _add_extra(troves: Path, extra: Path) -> None:
    (troves / "masters").mkdir()
    for file in sorted(extra.glob("*.db")):
        shutil.copy2(file, troves / file.name)
    for file in sorted(extra.glob("*.json")):
        shutil.copy2(file, troves / "masters" / file.name)


def facts_of(troves: Path, store: str) -> dict[str, str]:
    """Return ids of a trove by the names that the tables have for them."""
    runs = _asked(troves, store, "runs", "--all-ops", "--nested")
    cases = _asked(troves, store, "show", "*")
    found: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for row in runs:
        kinds = [row["kind"], *(["attempts"] if row["attempts"] else [])]
        for kind in (*kinds, "run", *(["traced"] if row["tests"] else [])):
            seen[kind] += 1
            found[kind + (str(seen[kind]) if seen[kind] > 1 else "")] = row["run_id"]
    for each in cases:
        found.setdefault(f"case_{each['op'].rpartition('.')[2]}", each["case_id"])
    if cases:
        found |= {"case": cases[0]["case_id"], "op": cases[0]["op"]}
        found["model"] = next(iter(cases[0]["models"]), "no-model")
    return found


def _asked(troves: Path, store: str, *words: str) -> list[Any]:
    done = run(Step("", (*words, "--store", store), as_json=True), troves)
    return list(json.loads(done.stdout)) if done.exit_code == 0 else []


def ignored() -> Any:
    """Return the names that shutil leaves out when it copies programs."""
    return shutil.ignore_patterns("__pycache__", ".pytest_cache")


# ------------------------------------------------------------------------------------------------
# record


def record(troves: Path, out: Path, only: str) -> int:
    """Run scenarios and the web server on copies of the troves, and keep what comes out."""
    out.mkdir(parents=True)
    facts: dict[str, dict[str, str]] = json.loads((troves / "facts.json").read_text())
    known = frozenset(value for each in facts.values() for value in each.values())
    places = (*installed(), *map(tuple, json.loads((troves / "places.json").read_text())))
    began = time.monotonic()
    with ThreadPoolExecutor(WORKERS) as pool:
        jobs = [
            pool.submit(record_scenario, each, troves, facts, Recording(out, known, places))
            for each in scenarios(troves)
            if re.search(only, each.name)
        ]
        jobs += [
            pool.submit(record_pages, name, troves, facts[name], Recording(out, known, places))
            for name in facts
            if re.search(only, f"pages {name}")
        ]
        for job in jobs:
            print(f"{time.monotonic() - began:5.1f} s  {job.result()}", flush=True)
    return 0


@contextmanager
def workplace(troves: Path, trove: str) -> Iterator[Path]:
    """Give a directory with copies of everything prepared; its path has always the same length."""
    with tempfile.TemporaryDirectory(prefix="characterize-") as name:
        directory = Path(name) / "work"
        shutil.copytree(troves, directory, ignore=ignored())
        if trove:
            home = directory if (directory / trove).exists() else directory / "golden"
            shutil.copy2(home / trove, directory / "trove.db")
        (directory / "out").mkdir()
        yield directory


def record_scenario(
    scenario: Scenario, troves: Path, facts: Mapping[str, Mapping[str, str]], recording: Recording
) -> str:
    """Run the steps of a scenario and keep outputs, files and schemas."""
    began = time.monotonic()
    store = "trove.db" if scenario.trove else ""
    with workplace(troves, scenario.trove) as directory:
        prepared = {path.name for path in directory.glob("*.db")}
        chosen = steps(scenario.lines, facts.get(scenario.trove, {}))
        done = [run(step, directory, store) for step in chosen]
        recording.directory, recording.fresh = directory, scenario.fresh
        made = [path for path in sorted(directory.glob("*.db")) if path.name not in prepared]
        recording.learn_runs([*made, directory / "trove.db"])
        for each in done:
            recording.keep(scenario.name, each)
        for path in made:
            recording.keep_schema(scenario.name, path)
        for name in ("out", "vectors_export", "generated", "report.html"):
            recording.keep_files(scenario.name, directory / name)
    return f"{scenario.name}: {len(done)} commands in {time.monotonic() - began:.1f} s"


@dataclass
class Recording:
    """Writes the results of one scenario, with placeholders for what varies."""

    out: Path
    known: frozenset[str]
    places: tuple[tuple[str, str], ...]
    directory: Path = Path()
    fresh: bool = False
    ids: dict[str, str] = field(default_factory=dict)
    names: Counter[str] = field(default_factory=Counter)

    def learn_runs(self, stores: Iterable[Path]) -> None:
        """Give numbers to the runs that were made, by trove and time."""
        for store in stores:
            if store.exists():
                runs = _asked(self.directory, store.name, "runs", "--all-ops")
                for row in sorted(runs, key=lambda row: str(row["started_at"])):
                    self.number(row["run_id"])

    def number(self, run_id: str) -> str:
        """Return the placeholder of a run, or its id where the fixed troves have it."""
        if run_id in self.known:
            return run_id
        return self.ids.setdefault(run_id, f"<run {len(self.ids) + 1}>")

    def keep(self, scenario: str, done: Done) -> None:
        """Write the exit code and the output of a step."""
        answers: dict[str, Any] = {"command": done.step.line, "exit": done.exit_code}
        name = self.only_name(done.step.named(scenario))
        parsed = parse(done.stdout) if done.step.as_json else None
        if parsed is not None:
            answers["stdout"] = self.plain(stable_doctor(parsed, done.step.verb))
        if "--help" in done.step.words:
            answers["options"] = options_of(done.stdout)
        _write_json(self.out / "json" / f"{name}.json", answers)
        shown = "" if parsed is not None else done.stdout
        text = f"$ {done.step.line}\n{shown}--- stderr\n{done.stderr}"
        _write(self.out / "text" / f"{name}.txt", self.text(text))

    def only_name(self, name: str) -> str:
        """Return a name for the file of a step; a command that is repeated has a number."""
        self.names[name] += 1
        return f"{name}-{self.names[name]}" if self.names[name] > 1 else name

    def keep_schema(self, scenario: str, path: Path) -> None:
        """Write the schema of a database that was made, and the number of rows."""
        _write_json(self.out / "schema" / f"{scenario}.{path.name}.json", schema_of(path))

    def keep_files(self, scenario: str, path: Path) -> None:
        """Write what commands have written: HTML and Markdown as text, all else as files."""
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file():
                name = self.replaced(str(file.relative_to(self.directory)))
                part = "text/files" if file.suffix in (".html", ".md") else "files"
                _write(self.out / part / scenario / name, self.content(file))

    def content(self, file: Path) -> str:
        """Return a file as text that can be compared."""
        if file.suffix == ".zip":
            return self.zipped(file)
        text = file.read_text(errors="replace")
        if file.suffix == ".html":
            return self.text(outline(text))
        if file.suffix == ".csv":
            rows = list(csv.DictReader(io.StringIO(text)))
            return dumped(self.plain(rows))
        if file.suffix in (".json", ".jsonl"):
            lines = [text] if file.suffix == ".json" else text.splitlines()
            return "\n".join(dumped(self.plain(parse(line))) for line in lines)
        return self.text(text)

    def zipped(self, file: Path) -> str:
        """Return the members of an archive."""
        with zipfile.ZipFile(file) as archive:
            members = [(name, archive.read(name).decode()) for name in archive.namelist()]
        return self.text(numbered_uuids("".join(f"=== {name}\n{text}\n" for name, text in members)))

    def plain(self, value: Any, key: str = "") -> Any:
        """Return JSON with placeholders."""
        if isinstance(value, dict):
            return self.plain_object(value)
        if isinstance(value, list):
            return [self.plain(each, key) for each in value]
        if self.fresh and VARYING.search(key) and value not in (None, ""):
            return f"<{type(value).__name__}>"
        if isinstance(value, float) and self.fresh:
            return float(f"{value:.5g}")
        return self.replaced(value) if isinstance(value, str) else value

    def plain_object(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return an object with placeholders, also for measured times and ids that vary."""
        varying = set()
        if self.fresh and VARYING.search(str(value.get("name", ""))):
            varying.add("value")
        if "case_id" in value and "$opaque" in json.dumps(value):
            varying.add("case_id")  # an unknown object has another token in each process
        return {
            self.replaced(key): "<varies>" if key in varying else self.plain(each, key)
            for key, each in value.items()
        }

    def replaced(self, text: str) -> str:
        """Return text without the paths and ids of this recording."""
        for path, name in ((str(self.directory), "<work>"), *self.places):
            text = text.replace(path, name)
        text = re.sub(r"(\.json)\.\d+\b", r"\1.<pid>", text)
        text = re.sub(r"\b[0-9a-f]{32}\b", lambda found: self.number(found[0]), text)
        for run_id, name in self.ids.items():
            text = text.replace(run_id[:12], name)
        return varying_replaced(text) if self.fresh else text

    def text(self, text: str) -> str:
        """Return output for people; widths of columns vary with what is in them."""
        text = self.replaced(text)
        if not self.fresh:
            return text
        lines = [re.sub(r" {2,}|[\u2500=-]{3,}", "  ", line).strip() for line in text.splitlines()]
        answers = [line for line in lines if line and not PROGRESS.search(line)]
        timed = iter(sorted(line for line in answers if line.startswith("<took>")))
        return (
            "\n".join(next(timed) if line.startswith("<took>") else line for line in answers) + "\n"
        )


VARYING: Final = re.compile(
    r"(_ns|_ms|_sec|_perf|_at|_ts|_bytes|^seconds|timestamp|^pid|^host|^hostname|_version"
    r"|^git_\w+|^hash|^address)$"
)
UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
WRITTEN_AT: Final = re.compile(r"^(optrove \S+), \d{4}-.* UTC$", re.MULTILINE)
STAMP: Final = re.compile(r"\d{8}_\d{6}_\d{6}")
PROGRESS: Final = re.compile(
    r"^optrove: (\d+:\d\d, |\d+ of \d+ cases, )|^plugins: "
    r"|^(\S+\.py|[.sFEx]+|\S+\.py [.sFEx]+)( +\[ *\d+%\])?$"
)
VARIABLE_TEXT: Final = (
    (re.compile(r"((\\n|\n) ?--- [^\\\n]*\+0x[^\\\n]*)+"), " <backtrace>"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+\d\d:\d\d)?"), "<time>"),
    (STAMP, "<stamp>"),
    (re.compile(r"\b\d+(\.\d+)?(e[-+]\d+)? ?(ns|us|µs|ms|s|min)\b"), "<took>"),
    (re.compile(r"0x[0-9a-f]{6,}"), "<address>"),
    (re.compile(r"\b(pid|process) \d{2,}"), "<pid>"),
    (re.compile(r"(?<=\.)(\d{4})\d{2,}\b"), r"\1"),
)


def varying_replaced(text: str) -> str:
    """Replace times, durations, addresses and the last digits of numbers."""
    for pattern, name in VARIABLE_TEXT:
        text = pattern.sub(name, text)
    return text


def numbered_uuids(text: str) -> str:
    """Replace UUIDs, which are made of the path of a trove, by their numbers."""
    numbers: dict[str, str] = {}
    return UUID.sub(lambda found: numbers.setdefault(found[0], f"<uuid {len(numbers)}>"), text)


def stable_doctor(parsed: Any, verb: str) -> Any:
    """Leave out versions and devices of this machine from what the doctor says."""
    if verb != "doctor":
        return parsed
    return [(each["part"], sorted(each)) for each in parsed["findings"]]


def options_of(text: str) -> list[str]:
    """Return the options and commands that a help text lists."""
    return sorted(set(re.findall(r"^  (-[\w-]+(?:, -[\w-]+)*|[a-z][\w-]*)(?=  )", text, re.M)))


def parse(text: str) -> Any:
    """Return the data of JSON text, or None."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def schema_of(path: Path) -> dict[str, Any]:
    """Return tables with columns and rows, and views and indexes with their SQL."""
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2")
        items = [row for row in found.fetchall() if not row[1].startswith("sqlite_")]
        return {f"{kind} {name}": described(database, kind, name, sql) for kind, name, sql in items}


def described(database: sqlite3.Connection, kind: str, name: str, sql: str) -> Any:
    """Return the columns of a table or view; the SQL of an index without its spaces."""
    if kind not in ("table", "view"):
        return " ".join(sql.split())
    columns = database.execute("SELECT * FROM pragma_table_info(?) ORDER BY cid", (name,))
    rows = database.execute(f'SELECT count(*) FROM "{name}"')  # noqa: S608 - a name of the schema
    return {"columns": [row[1:] for row in columns], "rows": rows.fetchone()[0]}


class Outline(HTMLParser):
    """Puts each tag with its attributes, and each text, on a line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        shown = "".join(f" {name}={value!r}" for name, value in attrs)
        self.lines.append(f"<{tag}{shown}>")

    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.lines += [line.strip() for line in data.splitlines() if line.strip()]


def outline(page: str) -> str:
    """Return the structure of an HTML page."""
    parser = Outline()
    parser.feed(page)
    return WRITTEN_AT.sub(r"\1, <time>", "\n".join(parser.lines) + "\n")


# ------------------------------------------------------------------------------------------------
# Web pages


def record_pages(name: str, troves: Path, facts: Mapping[str, str], recording: Recording) -> str:
    """Serve a trove, and keep each page and its JSON."""
    began = time.monotonic()
    scenario = Path(name).stem
    with workplace(troves, name) as directory, served(directory) as address:
        recording.directory = directory
        api = json.loads(fetched(f"{address}/openapi.json")[2])
        asked = [fill(line, quoted(facts)) for line in PAGES.strip().splitlines()]
        left_out = set(api["paths"]) - {line.partition("?")[0] for line in asked}
        assert not left_out, f"pages that nothing here asks for: {left_out}"
        _write_json(recording.out / "json" / "serve" / f"{scenario}.openapi.json", api)
        for template, page in zip(PAGES.strip().splitlines(), asked, strict=True):
            keep_page(recording, f"serve/{scenario}.{page_slug(template)}", address, page)
    return f"pages of {scenario}: {len(asked)} in {time.monotonic() - began:.1f} s"


def page_slug(template: str) -> str:
    """Return a file name for a page."""
    return re.sub(r"[^\w.=]+", "-", template).strip("-") or "overview"


def quoted(facts: Mapping[str, str]) -> dict[str, str]:
    """Return facts as parts of addresses."""
    return {
        name: urllib.parse.quote(value, safe="", errors="replace") for name, value in facts.items()
    }


def keep_page(recording: Recording, name: str, address: str, page: str) -> None:
    """Write a page for people and for machines."""
    status, kind, body = fetched(address + page)
    _write(recording.out / "text" / f"{name}.html", recording.text(outline(body)))
    as_json = page + ("&" if "?" in page else "?") + "format=json"
    json_status, json_kind, data = fetched(address + as_json)
    answers = {"page": [status, kind], "json": [json_status, json_kind], "data": parse(data)}
    _write_json(recording.out / "json" / f"{name}.json", recording.plain(answers))


@contextmanager
def served(directory: Path) -> Iterator[str]:
    """Serve the trove of a directory until the end, when all of it has been counted."""
    words = [str(BIN / "optrove"), "serve", "--port", "0", "--store", "trove.db"]
    log = directory / "serve.log"
    with log.open("w") as stream:
        server = subprocess.Popen(  # noqa: S603 - our own command
            words, cwd=directory, env=environment(directory), stdout=stream, stderr=stream
        )
    try:
        yield _ready(log)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(TIMEOUT)


def _ready(log: Path) -> str:
    """Return the address of a server as soon as it has counted everything."""
    for _ in range(300):
        time.sleep(0.1)
        found = re.search(r"http://[\d.]+:\d+", log.read_text())
        if found and not json.loads(fetched(f"{found[0]}/?format=json")[2]).get("counting"):
            return found[0]
    raise SystemExit(f"the server did not start:\n{log.read_text()}")


def fetched(address: str) -> tuple[int, str, str]:
    """Return status, content type and text of an address."""
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 - loopback
            return answer.status, answer.headers["content-type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["content-type"], error.read().decode()


# ------------------------------------------------------------------------------------------------
# compare


def compare(a: Path, b: Path, *, lines: int, text: bool) -> int:
    """Show the differences of two recordings by command; 1 if one of them matters."""
    found = differing(a, b)
    strict = [name for name in found if name.split("/")[0] in STRICT]
    words = [name for name in found if name not in strict]
    for name in strict:
        show_difference(a, b, name, lines)
    for name in words if text else ():
        show_difference(a, b, name, lines)
    total = sum(1 for path in a.rglob("*") if path.is_file())
    print(f"{total} files compared")
    print_groups("answers that differ", strict)
    print_groups("texts that differ", words)
    return 1 if strict else 0


def differing(a: Path, b: Path) -> list[str]:
    """Return the names of files that are not the same in both, or in one only."""
    names = {str(path.relative_to(top)) for top in (a, b) for path in top.rglob("*")}
    return sorted(name for name in names if _content(a / name) != _content(b / name))


def _content(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None


def show_difference(a: Path, b: Path, name: str, lines: int) -> None:
    """Print the beginning of a unified diff."""
    old, new = (_content(top / name) for top in (a, b))
    if old is None or new is None:
        print(f"only in {b if old is None else a}: {name}\n")
        return
    wanted = list(difflib.unified_diff(pieces(old), pieces(new), name, name, lineterm=""))
    print("\n".join(wanted[:lines]))
    print(f"... {len(wanted) - lines} lines more\n" if len(wanted) > lines else "")


def pieces(text: str) -> list[str]:
    """Return lines, long ones in pieces, so that a difference in them can be seen."""
    return [piece for line in text.splitlines() for piece in re.findall(r".{1,160}", line) or [""]]


def print_groups(title: str, names: list[str]) -> None:
    """Print how many files differ, by part and command."""
    groups = Counter("/".join(name.split("/")[:2]) for name in names)
    print(f"{title}: {len(names)}")
    for group, count in sorted(groups.items()):
        print(f"  {count:4}  {group}")


# ------------------------------------------------------------------------------------------------


def dumped(value: Any) -> str:
    """Return JSON with one value per line, in the order of the answer."""
    return json.dumps(value, indent=1) + "\n"


def _write_json(path: Path, value: Any) -> None:
    _write(path, dumped(value))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, errors="surrogateescape")


def main() -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    making = verbs.add_parser("prepare", help="make the fixed troves")
    making.add_argument("troves", type=Path)
    making.add_argument("--extra", type=Path, help="a directory of more troves and master files")
    recording = verbs.add_parser("record", help="run every command on copies of the troves")
    recording.add_argument("troves", type=Path)
    recording.add_argument("out", type=Path)
    recording.add_argument("--only", default="", help="a regular expression for scenarios")
    comparing = verbs.add_parser("compare", help="compare two recordings")
    comparing.add_argument("a", type=Path)
    comparing.add_argument("b", type=Path)
    comparing.add_argument("--text", action="store_true", help="show differences of texts, too")
    comparing.add_argument("--lines", type=int, default=40, help="lines of each difference")
    verbs.add_parser("serve-forks", help="used by record")
    asked = parser.parse_args()
    if asked.verb == "serve-forks":
        return serve_forks()
    if asked.verb == "prepare":
        return prepare(asked.troves.resolve(), asked.extra)
    if asked.verb == "record":
        return record(asked.troves.resolve(), asked.out, asked.only)
    return compare(asked.a, asked.b, lines=asked.lines, text=asked.text)


if __name__ == "__main__":
    sys.exit(main())
