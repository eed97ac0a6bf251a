"""What is left of a traced ttnn program that ends suddenly."""

import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from optrove.serializer.wire import encode
from tracing import readers_in, seen_in, summary_of

pytestmark = pytest.mark.ttnn

KILLS = 6
LIMIT_SECONDS = 120

CHILD = """
import mmap, resource, sys
from pathlib import Path
import optrove

with optrove.mock_board("n150"):
    import ttnn
directory, how = Path(sys.argv[1]), sys.argv[2]
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
with (directory / "returned").open("r+b") as file:
    progress = mmap.mmap(file.fileno(), 16)
device = ttnn.open_device(device_id=0)
a = ttnn.zeros((32, 32), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
ttnn.add(a, 0)  # so that its kernels are built
with optrove.trace(directory / "trove.db"):
    for number in range(1, 1 << 60):
        ttnn.add(a, number // 3)
        progress[:8] = number.to_bytes(8, sys.byteorder)
        if how == "crash" and number == 30:
            ttnn.deallocate(a)
            ttnn.concat([a, a], 0)
"""


def start_child(directory, how):
    """Start a process that makes calls without end, or until it crashes."""
    directory.mkdir()
    (directory / "returned").write_bytes(bytes(16))
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(directory), how],
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def returned_in(directory):
    """Return how many calls had returned."""
    return int.from_bytes((directory / "returned").read_bytes()[:8], sys.byteorder)


def kill_child(directory, count):
    """Start a process and kill it soon after so many of its calls have returned."""
    child = start_child(directory, "kill")
    while returned_in(directory) < count:
        assert child.poll() is None
        time.sleep(0.002)
    child.kill()
    return child.wait(LIMIT_SECONDS)


def calls_in(directory):
    (reader,) = readers_in(directory)
    return seen_in(reader)


def test_whenever_ttnn_is_killed_every_call_that_returned_is_in_the_journal(tmp_path):
    chance = random.Random(7)  # noqa: S311 - moments, not secrets
    directories = [tmp_path / str(number) for number in range(KILLS)]
    counts = [chance.randrange(300) for _ in directories]
    with ThreadPoolExecutor(2) as pool:
        statuses = [*pool.map(kill_child, directories, counts)]
    assert statuses == [-signal.SIGKILL] * KILLS
    for directory in directories:
        returned = returned_in(directory)
        calls = calls_in(directory)
        assert returned <= len(calls) <= returned + 1
        for number, call in enumerate(calls, start=1):
            assert call.op == "ttnn.add"
            assert encode(call["input_tensor_b"]) == number // 3
            if number <= returned:
                assert call.outcome == "returned"
                assert [output.shape for output in call.call.outputs] == [(32, 32)]
        summary = summary_of(directory)
        assert summary.accounting.observed == len(calls)
        assert len(summary.in_flight) <= 1


def test_the_op_in_which_ttnn_crashed_is_named_with_its_arguments(tmp_path):
    directory = tmp_path / "crashed"
    assert start_child(directory, "crash").wait(LIMIT_SECONDS) == -signal.SIGSEGV
    assert returned_in(directory) == 30
    *before, freed, last = calls_in(directory)
    assert [call.outcome for call in before] == ["returned"] * 30
    assert (freed.op, freed.outcome) == ("ttnn.deallocate", "returned")
    ((_, case),) = summary_of(directory).in_flight
    assert (case.op, case) == ("ttnn.concat", last.case)
    assert [part.identity for part in last["tensors"].items] == [0, 0]
    assert encode(last["dim"]) == 0
    assert last.outcome == "unfinished"
