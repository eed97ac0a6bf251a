"""How near the numbers of the shadow are to those of ttnn's real kernels.

The truth is a directory with ``manifest.jsonl`` and ``wormhole.npz`` and ``blackhole.npz``: small
cases with the exact inputs and outputs of the kernels, measured on a board or on Tenstorrent's
simulator. Each case runs on a mock board of its architecture, with ideal and with hardware
numerics. A row gives, for both, the share of outputs that are equal in all bits, the largest
difference in steps of the output's dtype, and the PCC; for hardware numerics also their error
against the ideal ones, divided by that of the kernels. With ``--sim``, the kernels of the installed
ttnn also run, on the simulator of OPTROVE_SIM: where they differ from the truth, the release or the
simulator has changed.

One process runs one board with one kind of numerics: the tool starts itself for each. The simulator
ends the process in a case that it does not support; another process then continues after it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TRUTH = Path(__file__).parents[1] / "tests" / "truth"
BOARDS = {"wormhole": "n150", "blackhole": "p150"}
NUMERICS = ("ideal", "hardware")
KERNELS = "kernels"

# What the manifest calls a variant, as a compute configuration.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "HiFi4": {"math_fidelity": "HiFi4"},
    "HiFi4_acc32": {"math_fidelity": "HiFi4", "fp32_dest_acc_en": True},
    "LoFi": {"math_fidelity": "LoFi"},
    "LoFi_approx": {"math_fidelity": "LoFi", "math_approx_mode": True},
}
CONFIGURATION = ("math_fidelity", "fp32_dest_acc_en", "packer_l1_acc", "math_approx_mode")
PASSED_ON = (
    "activation",
    "batch_idx",
    "dim",
    "dims",
    "fast_and_approximate_mode",
    "head_size",
    "is_causal",
    "num_heads",
    "num_kv_heads",
    "scale_factor",
    "weight",
)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the shadow agrees with the truth in one case."""

    equal: float
    ulp: float
    pcc: float
    error: float | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One case of the truth: its line in the manifest and its arrays."""

    manifest: Mapping[str, Any]
    inputs: Sequence[Any]
    outputs: Sequence[Any]


def read_cases(directory: Path, arch: str) -> Iterator[Case]:
    """Yield the cases of one architecture."""
    arrays: dict[str, Any] = {}
    for file in sorted(directory.glob(f"{arch}*.npz")):
        arrays |= np.load(file)
    for line in (directory / "manifest.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["arch"] != arch:
            continue
        kinds = {
            kind: [
                arrays[f"{row['id']}/{kind}_{place}"] for place in range(len(row[f"{kind}_dtypes"]))
            ]
            for kind in ("input", "output")
        }
        yield Case(row, kinds["input"], kinds["output"])


class Runner:
    """Runs cases on the device of one loaded ttnn."""

    def __init__(self, ttnn: Any, torch: Any, device: Any) -> None:
        self._ttnn = ttnn
        self._torch = torch
        self._device = device
        self._special = {
            "add.activations": self._with_activation,
            "add.sharded": self._height_sharded,
            "multiply.sharded": self._height_sharded,
            "argmax": lambda case: self._call(case, dim=-1),
            "avg_pool2d": self._pool,
            "concat": lambda case: ttnn.concat(self._tensors(case), dim=-1),
            "conv1d": self._conv1d,
            "conv2d": self._conv2d,
            "convert_to_hwc": self._to_hwc,
            "cumsum": lambda case: self._call(case, dim=-2),
            "embedding": self._embedding,
            "gather": self._gather,
            "group_norm": self._group_norm,
            "layer_norm": self._norm,
            "linear": self._linear,
            "matmul.width_sharded": self._width_sharded,
            "max_pool2d": self._pool,
            "nlp_create_qkv_heads": lambda case: self._call(case, transpose_k_heads=False),
            "nlp_concat_heads_decode": self._concat_heads_decode,
            "nlp_create_qkv_heads_decode": self._create_heads_decode,
            "pad": lambda case: self._call(case, padding=((0, 32), (0, 32)), value=2.0),
            "paged_update_cache": self._paged_update,
            "permute": lambda case: self._call(case, (0, 2, 1, 3)),
            "repeat": lambda case: self._call(case, (1, 2, 1, 2)),
            "repeat_interleave": lambda case: self._call(case, 2, dim=1),
            "reshape": lambda case: self._call(case, (1, 2, 32, 64)),
            "rms_norm": self._norm,
            "rotary_embedding.token": self._rotary_token,
            "rotary_embedding_llama.decode": self._rotary_decode,
            "scale_mask_softmax": self._masked_softmax,
            "attention_softmax": self._masked_softmax,
            "sdpa_decode": lambda case: self._call(case, cur_pos=case.manifest["cur_pos"]),
            "slice": lambda case: self._call(case, (0, 0, 32, 32), (1, 1, 64, 96)),
            "softmax": self._softmax,
            "split_heads.sharded": self._split_sharded,
            "topk": lambda case: self._call(case, 32),
            "transpose": lambda case: self._call(case, -2, -1),
            "typecast": lambda case: self._call(case, getattr(ttnn, case.manifest["to"])),
            "untilize": lambda case: self._call(case, ttnn.ROW_MAJOR_LAYOUT),
            "upsample": self._upsample,
        }

    def run(self, case: Case) -> list[Any]:
        """Return the outputs of one case as arrays."""
        name = case.manifest["id"]
        special = self._special.get(name) or self._special.get(name.split(".")[0])
        result = (special or self._call)(case)
        tensors = [result] if isinstance(result, self._ttnn.Tensor) else list(result)
        values = [self._ttnn.to_torch(tensor) for tensor in tensors[: len(case.outputs)]]
        return [
            (value.float() if value.is_floating_point() else value.to(self._torch.int32)).numpy()
            for value in values
        ]

    def _call(self, case: Case, *arguments: Any, **keywords: Any) -> Any:
        row = case.manifest
        given = [*arguments, *row.get("arguments", [])]
        if "scalar" in row:
            given.append(row["scalar"])
        known = {name: row[name] for name in PASSED_ON if name in row}
        return self._op(case)(
            *self._tensors(case), *given, **known, **keywords, **self._configuration(row)
        )

    def _op(self, case: Case) -> Any:
        op = self._ttnn
        for part in case.manifest["op"].split(".")[1:]:
            op = getattr(op, part)
        return op

    def _tensors(self, case: Case) -> list[Any]:
        return [
            self._tensor(array, dtype)
            for array, dtype in zip(case.inputs, case.manifest["input_dtypes"], strict=True)
        ]

    def _tensor(self, array: Any, dtype: str, layout: Any = None, memory: Any = None) -> Any:
        ttnn = self._ttnn
        return ttnn.from_torch(
            self._torch.from_numpy(array),
            dtype=getattr(ttnn, dtype),
            layout=layout or ttnn.TILE_LAYOUT,
            device=self._device,
            memory_config=memory,
        )

    def _configuration(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the compute configuration of a case as a keyword; nothing for the defaults."""
        fields = {key: row[key] for key in CONFIGURATION if key in row}
        fields |= VARIANTS.get(row.get("variant", ""), {})
        if not fields:
            return {}
        fidelity = getattr(self._ttnn.MathFidelity, fields.pop("math_fidelity"))
        plain = {"math_approx_mode": False, "fp32_dest_acc_en": False, "packer_l1_acc": False}
        kind = self._ttnn.types.BlackholeComputeKernelConfig
        if row["arch"] == "wormhole":
            kind = self._ttnn.WormholeComputeKernelConfig
        return {"compute_kernel_config": kind(math_fidelity=fidelity, **plain | fields)}

    def _with_activation(self, case: Case) -> Any:
        activations = [
            getattr(self._ttnn.UnaryOpType, name) for name in case.manifest["activations"]
        ]
        return self._call(case, activations=activations)

    def _sharded(self, shape: Sequence[int], cores: Sequence[int], how: str) -> Any:
        ttnn = self._ttnn
        return ttnn.create_sharded_memory_config(
            shape,
            core_grid=ttnn.CoreGrid(y=cores[0], x=cores[1]),
            strategy=getattr(ttnn.ShardStrategy, how),
            use_height_and_width_as_shard_shape=True,
        )

    def _height_sharded(self, case: Case) -> Any:
        memory = self._sharded((32, 64), (1, 2), "HEIGHT")
        tensors = [
            self._tensor(array, dtype, memory=memory)
            for array, dtype in zip(case.inputs, case.manifest["input_dtypes"], strict=True)
        ]
        return self._op(case)(*tensors, memory_config=memory)

    def _softmax(self, case: Case) -> Any:
        stable = {"numeric_stable": True} if case.manifest.get("variant") == "stable" else {}
        if case.manifest["op"].endswith("in_place"):
            return self._call(case)
        return self._call(case, dim=-1, **stable)

    def _masked_softmax(self, case: Case) -> Any:
        values, mask = self._tensors(case)
        if "head_size" in case.manifest:
            head_size = case.manifest["head_size"]
            return self._op(case)(values, head_size=head_size, attention_mask=mask)
        return self._op(case)(values, case.manifest["scale"], mask)

    def _norm(self, case: Case) -> Any:
        values, *weights = self._tensors(case)
        if case.manifest["id"].endswith(".sharded"):
            blocks = self._sharded((32, 64), (2, 2), "BLOCK")
            values = self._ttnn.to_memory_config(values, blocks)
        weight = {"weight": weights[0]} if weights else {}
        return self._op(case)(values, **weight, **self._configuration(case.manifest))

    def _group_norm(self, case: Case) -> Any:
        ttnn = self._ttnn
        values = self._tensor(case.inputs[0], "bfloat16", ttnn.ROW_MAJOR_LAYOUT)
        values = ttnn.to_memory_config(values, self._sharded((64, 64), (1, 1), "BLOCK"))
        mask = ttnn.create_group_norm_input_mask(64, case.manifest["num_groups"], 1)
        mask = ttnn.to_device(mask, self._device)
        return ttnn.group_norm(
            values,
            num_groups=case.manifest["num_groups"],
            input_mask=mask,
            core_grid=ttnn.CoreGrid(y=1, x=1),
            memory_config=values.memory_config(),
            inplace=False,
        )

    def _linear(self, case: Case) -> Any:
        left, right, *bias = self._tensors(case)
        known = {"bias": bias[0]} if bias else {"activation": case.manifest["activation"]}
        return self._ttnn.linear(left, right, **known)

    def _width_sharded(self, case: Case) -> Any:
        ttnn = self._ttnn
        memory = self._sharded((32, 64), (1, 4), "WIDTH")
        left = self._tensor(case.inputs[0], "bfloat16", memory=memory)
        right = self._tensor(case.inputs[1], case.manifest["input_dtypes"][1])
        return ttnn.matmul(
            left,
            right,
            memory_config=ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG,
            **self._configuration(case.manifest),
        )

    def _embedding(self, case: Case) -> Any:
        layout = self._ttnn.ROW_MAJOR_LAYOUT
        places = self._tensor(case.inputs[0], "uint32", layout)
        return self._ttnn.embedding(places, self._tensor(case.inputs[1], "bfloat16", layout))

    def _gather(self, case: Case) -> Any:
        values, places = self._tensors(case)
        return self._ttnn.gather(values, case.manifest["dim"], index=places)

    def _rotary_token(self, case: Case) -> Any:
        return self._op(case)(*self._tensors(case), case.manifest["token_idx"])

    def _upsample(self, case: Case) -> Any:
        values = self._tensor(case.inputs[0], "bfloat16", self._ttnn.ROW_MAJOR_LAYOUT)
        return self._ttnn.upsample(values, case.manifest["scale_factor"])

    def _to_hwc(self, case: Case) -> Any:
        ttnn = self._ttnn
        memory = self._sharded((8, 64), (1, 1), "WIDTH")
        values = self._tensor(case.inputs[0], "bfloat16", ttnn.ROW_MAJOR_LAYOUT, memory)
        target = self._sharded((64, 8), (1, 1), "HEIGHT")
        return ttnn.experimental.convert_to_hwc(values, memory_config=target)

    def _pool(self, case: Case) -> Any:
        values = self._tensor(case.inputs[0], "bfloat16", self._ttnn.ROW_MAJOR_LAYOUT)
        dilation = {"dilation": [1, 1]} if "max" in case.manifest["id"] else {}
        return self._op(case)(
            input_tensor=values,
            batch_size=1,
            input_h=8,
            input_w=8,
            channels=32,
            kernel_size=[2, 2],
            stride=[2, 2],
            padding=[0, 0],
            **dilation,
        )

    def _conv1d(self, case: Case) -> Any:
        ttnn, (values, filters) = self._ttnn, case.inputs
        return ttnn.conv1d(
            input_tensor=self._tensor(values, "bfloat16", ttnn.ROW_MAJOR_LAYOUT),
            weight_tensor=ttnn.from_torch(self._torch.from_numpy(filters), dtype=ttnn.bfloat16),
            device=self._device,
            in_channels=filters.shape[1],
            out_channels=filters.shape[0],
            batch_size=1,
            input_length=values.shape[1],
            kernel_size=3,
            stride=1,
            padding=1,
        )

    def _conv2d(self, case: Case) -> Any:
        ttnn, (values, filters) = self._ttnn, case.inputs
        rows = np.ascontiguousarray(values.transpose(0, 2, 3, 1)).reshape(1, 1, 64, -1)
        configuration = self._configuration(case.manifest)
        step = 2 if case.manifest.get("variant") == "stride2" else 1
        return ttnn.conv2d(
            input_tensor=self._tensor(rows, "bfloat16", ttnn.ROW_MAJOR_LAYOUT),
            weight_tensor=ttnn.from_torch(self._torch.from_numpy(filters), dtype=ttnn.bfloat16),
            device=self._device,
            in_channels=values.shape[1],
            out_channels=filters.shape[0],
            batch_size=1,
            input_height=8,
            input_width=8,
            kernel_size=(3, 3),
            stride=(step, step),
            padding=(1, 1),
            groups=values.shape[1] // filters.shape[1],
            **{key.replace("compute_kernel", "compute"): it for key, it in configuration.items()},
        )

    def _paged_update(self, case: Case) -> Any:
        cache = self._tensor(case.inputs[0], "bfloat16")
        memory = self._sharded((32, 64), (1, 4), "HEIGHT")
        values = self._tensor(case.inputs[1], "bfloat16", memory=memory)
        update = self._ttnn.experimental.paged_update_cache
        update(cache, values, update_idxs=case.manifest["update_idxs"])
        return cache

    def _create_heads_decode(self, case: Case) -> Any:
        memory = self._ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG
        return self._call(case, memory_config=memory)

    def _concat_heads_decode(self, case: Case) -> Any:
        memory = self._sharded((32, 64), (4, 8), "HEIGHT")
        values = self._tensor(case.inputs[0], "bfloat16", memory=memory)
        return self._op(case)(values, num_heads=case.manifest["num_heads"])

    def _rotary_decode(self, case: Case) -> Any:
        memory, small = (self._sharded((32, width), (1, 8), "HEIGHT") for width in (64, 32))
        tensors = [self._tensor(array, "bfloat16", memory=memory) for array in case.inputs[:3]]
        matrix = self._tensor(case.inputs[3], "bfloat16", memory=small)
        return self._op(case)(*tensors, matrix, is_decode_mode=True)

    def _split_sharded(self, case: Case) -> Any:
        memory = self._sharded((64, 96), (2, 2), "BLOCK")
        values = self._tensor(case.inputs[0], "bfloat16", memory=memory)
        heads = case.manifest["num_heads"]
        target = self._ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG
        return self._op(case)(values, num_heads=heads, memory_config=target)


STEP = {"bfloat16": 16, "bfloat8_b": 17, "bfloat4_b": 20, "float32": 0}


def flat(arrays: Sequence[Any]) -> Any:
    """Return all values in one array."""
    return np.concatenate([array.reshape(-1).astype(np.float32) for array in arrays])


def compare(
    truth: Sequence[Any], found: Sequence[Any], dtypes: Sequence[str], ideal: Any = None
) -> Agreement:
    """Return how far the outputs agree; NaN equals NaN, and zeros of both signs are equal."""
    one, other = flat(truth), flat(found)
    if one.shape != other.shape:
        raise ValueError(f"{other.size} values for {one.size}")
    equal = (one == other) | (np.isnan(one) & np.isnan(other))
    step = 1 << STEP.get(dtypes[0], 0)
    steps = np.abs(_ordered(one) - _ordered(other)) / step
    finite = np.isfinite(one) & np.isfinite(other)
    ulp = float(np.where(finite, steps, 0).max(initial=0))
    error = None if ideal is None else _ratio_of_errors(one, other, ideal)
    return Agreement(float(equal.mean()), ulp, pcc(one[finite], other[finite]), error)


def _ratio_of_errors(truth: Any, found: Any, ideal: Any) -> float | None:
    """Return the error of the shadow divided by that of the kernels; None if they have none."""
    finite = np.isfinite(truth) & np.isfinite(found) & np.isfinite(ideal)
    exact = ideal[finite].astype(np.float64)
    errors = [float(np.linalg.norm(values[finite] - exact)) for values in (found, truth)]
    return errors[0] / errors[1] if errors[1] else None


def _ordered(values: Any) -> Any:
    """Return integers whose differences count the float32 numbers between the values."""
    bits = values.view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def pcc(one: Any, other: Any) -> float:
    """Return the Pearson correlation of two arrays, in float64."""
    one, other = one.astype(np.float64), other.astype(np.float64)
    if one.size == 0 or np.array_equal(one, other):
        return 1.0
    scale = max(np.abs(one).max(), np.abs(other).max())
    one, other = one / scale, other / scale
    one, other = one - one.mean(), other - other.mean()
    norm = float(np.sqrt((one * one).sum() * (other * other).sum()))
    return float((one * other).sum() / norm) if norm else 0.0


def measure(
    directory: Path,
    arch: str,
    numerics: str,
    only: str = "",
    skip: int = 0,
    ideal: Path | None = None,
) -> Iterator[tuple[Case, Any]]:
    """Yield each case of an architecture with its agreement, or the error as text.

    Ideal outputs are written to ``ideal``, all others are compared with them.
    """
    import optrove

    if numerics == KERNELS:
        board = optrove.sim_board(BOARDS[arch])
    else:
        board = optrove.mock_board(BOARDS[arch], shadow=True, numerics=numerics)
    cases = (case for case in read_cases(directory, arch) if only in case.manifest["id"])
    with board:
        import torch
        import ttnn  # the board has to be there first

        device = ttnn.open_device(device_id=0, l1_small_size=24576)
        runner = Runner(ttnn, torch, device)
        try:
            for case in islice(cases, skip, None):
                place = ideal and ideal / f"{case.manifest['id']}.npy"
                yield case, _measured(runner, case, place, writes=numerics == "ideal")
        finally:
            ttnn.close_device(device)


def _measured(runner: Runner, case: Case, ideal: Path | None, *, writes: bool) -> Agreement | str:
    try:
        found, dtypes = runner.run(case), case.manifest["output_dtypes"]
        if ideal is not None and writes:
            np.save(ideal, flat(found))
        known = None if writes or ideal is None or not ideal.exists() else np.load(ideal)
        return compare(case.outputs, found, dtypes, known)
    except Exception as error:  # noqa: BLE001 - a case that cannot run is a row of the table
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return f"{type(error).__name__}: {lines[0]}"[:400]


def answers(
    directory: Path, arch: str, numerics: str, only: str, ideal: Path | None = None
) -> dict[str, Any]:
    """Return the agreement of each case, measured by other processes, or the error as text."""
    rows = map(json.loads, (directory / "manifest.jsonl").read_text().splitlines())
    names = [row["id"] for row in rows if row["arch"] == arch and only in row["id"]]
    found: dict[str, Any] = {}
    while len(found) < len(names):
        asked = ["--truth", directory, "--arch", arch, "--numerics", numerics, "--only", only]
        asked += ["--ideal", ideal] if ideal else []
        done = subprocess.run(  # noqa: S603 - this file
            [sys.executable, __file__, *map(str, asked), "--skip", str(len(found))],
            check=False,
            stdout=subprocess.PIPE,
            text=True,
        )
        lines = done.stdout.splitlines()
        for answer in (json.loads(line) for line in lines if line.startswith("{")):
            found[answer["id"]] = answer[numerics]
        if done.returncode != 0:
            refusals = [line for line in lines if "] ERROR: " in line]
            if not refusals:
                done.check_returncode()
            found[names[len(found)]] = refusals[-1]
    return found


def table(directory: Path, arch: str, only: str, columns: Sequence[str]) -> Iterator[str]:
    """Yield the rows of a table, each column measured by other processes."""
    with TemporaryDirectory() as place:
        ideal = Path(place)
        found = {column: answers(directory, arch, column, only, ideal) for column in columns}
    yield "| case | " + " | ".join(f"{it}: bits equal, ULP, PCC" for it in columns) + " |"
    yield "|---|" + "--:|" * len(columns)
    for name in found[columns[0]]:
        yield f"| `{name}` | " + " | ".join(_cell(found[it][name]) for it in columns) + " |"


def _cell(found: Any) -> str:
    if isinstance(found, str):
        return found
    error = "" if found["error"] is None else f", error {found['error']:.3f}"
    return f"{100 * found['equal']:.2f} %, {found['ulp']:.0f}, {found['pcc']:.7f}{error}"


def main() -> int:
    """Print a table; with --arch and --numerics a line of JSON for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--truth", type=Path, default=TRUTH)
    parser.add_argument("--arch", choices=[*BOARDS], default="wormhole")
    parser.add_argument(
        "--numerics", choices=(*NUMERICS, KERNELS), help="one kind only, as lines of JSON"
    )
    parser.add_argument("--sim", action="store_true", help="also run the kernels of this ttnn")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first cases")
    parser.add_argument("--ideal", type=Path, help="directory of ideal outputs")
    parser.add_argument("--only", default="", help="cases whose id contains this")
    asked = parser.parse_args()
    if asked.numerics is None:
        columns = (*NUMERICS, KERNELS) if asked.sim else NUMERICS
        for line in table(asked.truth, asked.arch, asked.only, columns):
            print(line)
        return 0
    options = (asked.truth, asked.arch, asked.numerics, asked.only, asked.skip, asked.ideal)
    for case, found in measure(*options):
        answer = found if isinstance(found, str) else asdict(found)
        # The simulator may end the process in the next case, and nothing is flushed then.
        print(json.dumps({"id": case.manifest["id"], asked.numerics: answer}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
