"""A small trove with two models, for tests of what is asked of troves; needs no framework."""

from __future__ import annotations

from optrove.model.records import DeviceKind, Environment, Run, RunKind
from optrove.model.trove import Imported, ImportedCase, Machine
from optrove.trove.place import place_of
from optrove.trove.trove import open_trove
from trove_rows import case, memory, shard, tensor

LLAMA = "meta-llama/Llama-3.2-1B-Instruct"
RESNET = "models/resnet50/test_resnet.py::test_model"
LLAMA_RUN = "1f3a9c" + "0" * 26
RESNET_RUN = "77b0e2" + "0" * 26


def matmul(dtype="bfloat8_b", where="DRAM_INTERLEAVED", shards=None, rows=32, **more):
    weights = tensor(64, 64, dtype=dtype, where=memory(where, shards), number=1)
    return case(
        "ttnn.matmul", input_tensor_a=tensor(1, 1, rows, 64), input_tensor_b=weights, **more
    )


def fill(index):
    cache = tensor(8, 1, 32, 64, dtype="bfloat8_b")
    return case("ttnn.experimental.paged_fill_cache", cache=cache, batch_idx=index)


ADD = case("ttnn.add", input_tensor_a=tensor(32, 32), input_tensor_b=1.5)
TO_DEVICE = case("ttnn.to_device", tensor=tensor(32, 32))
SHARDED = matmul(where="L1_WIDTH_SHARDED", shards=shard((64, 8), (7, 0)))
LLAMA_CASES = (
    (matmul(), 100),
    (SHARDED, 40),
    (matmul("bfloat16", rows=128), 7),
    (TO_DEVICE, 9),
    *((fill(index), 2) for index in range(8)),
)
RESNET_CASES = ((ADD, 50), (matmul("bfloat16", rows=128), 3))


def run_of(run_id, source, *, model=None, board=None, started_at="2026-01-02T03:04:05.000000Z"):
    return Run(
        id=run_id,
        kind=RunKind.IMPORT,
        source=source,
        environment=Environment("0.1", "3.12", "linux", board=board, device_kind=DeviceKind.MOCK),
        started_at=started_at,
        finished_at=started_at,
        model=model,
    )


def imported(run, cases):
    """Return an import: a run, and cases with the number of their calls."""
    machine = Machine("Wormhole", run.environment.board)
    found = tuple(ImportedCase(one, count, "$") for one, count in cases)
    return Imported(run, machine, found)


LLAMA_IMPORT = imported(
    run_of(LLAMA_RUN, f"demo.py [HF_MODEL:{LLAMA}]", model=LLAMA, board="n300"), LLAMA_CASES
)
RESNET_IMPORT = imported(
    run_of(RESNET_RUN, RESNET, board="n150", started_at="2026-01-03T03:04:05.000000Z"),
    RESNET_CASES,
)


def make_trove(path, *parts):
    """Make a trove of what was imported."""
    with open_trove(place_of(str(path)), create=True) as trove:
        for part in parts:
            trove.add_imported(part)
    return path
