"""What is left of a traced ttnn program that ends suddenly."""

import json
import os
import signal
import subprocess
import sys

import pytest

from optrove.codec.wire import encode
from tracing import readers_in, seen_in, summary_of

pytestmark = pytest.mark.ttnn

KILLS = 20
LIMIT_SECONDS = 120

# Forks before a device is opened, since ttnn does not survive it afterwards.
CHILDREN = """
import json, mmap, os, random, resource, signal, sys, time
from pathlib import Path
import optrove

with optrove.mock_board("n150"):
    import ttnn
place, how, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def work(directory, told):
    device = ttnn.open_device(device_id=0)
    a = ttnn.zeros((32, 32), dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    with optrove.trace(directory / "trove.db"):
        told[8:9] = b"1"
        for number in range(1, 1 << 60):
            ttnn.add(a, number // 3)
            told[:8] = number.to_bytes(8, sys.byteorder)
            if how == "crash" and number == 30:
                ttnn.deallocate(a)
                ttnn.multiply(a, 31)


chance = random.Random(7)
for number in range(count):
    directory = place / str(number)
    directory.mkdir()
    told = mmap.mmap(-1, 16)
    process = os.fork()
    if process == 0:
        work(directory, told)
    if how == "kill":
        while told[8:9] != b"1":
            time.sleep(0.001)
        time.sleep(chance.random() * 0.03)
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    told = int.from_bytes(told[:8], sys.byteorder)
    print(json.dumps([str(directory), told, os.waitstatus_to_exitcode(status)]))
"""


def end_children(place, how, count):
    done = subprocess.run(
        [sys.executable, "-c", CHILDREN, str(place), how, str(count)],
        cwd=place,
        env=os.environ | {"TT_LOGGER_LEVEL": "off"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


def calls_in(directory):
    (reader,) = readers_in(directory)
    return seen_in(reader)


def test_whenever_ttnn_is_killed_every_call_that_returned_is_in_the_journal(tmp_path):
    children = end_children(tmp_path, "kill", KILLS)
    assert [status for *_, status in children] == [-signal.SIGKILL] * KILLS
    for directory, returned, _ in children:
        calls = calls_in(tmp_path / directory)
        assert returned <= len(calls) <= returned + 1
        for number, call in enumerate(calls, start=1):
            assert call.op == "ttnn.add"
            assert encode(call["input_tensor_b"]) == number // 3
            if number <= returned:
                assert call.outcome == "returned"
                assert [output.shape for output in call.call.outputs] == [(32, 32)]
        summary = summary_of(tmp_path / directory)
        assert summary.calls == len(calls)
        assert len(summary.in_flight) <= 1
    assert max(returned for _, returned, _ in children) > 20


def test_the_op_in_which_ttnn_crashed_is_named_with_its_arguments(tmp_path):
    ((directory, returned, status),) = end_children(tmp_path, "crash", 1)
    assert (returned, status) == (30, -signal.SIGSEGV)
    *before, freed, last = calls_in(tmp_path / directory)
    assert [call.outcome for call in before] == ["returned"] * 30
    assert (freed.op, freed.outcome) == ("ttnn.deallocate", "returned")
    (flying,) = summary_of(tmp_path / directory).in_flight
    assert (flying.op, flying.case) == ("ttnn.multiply", last.case)
    assert encode(last["input_tensor_b"]) == 31
    assert last.outcome == "unfinished"
