import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from optrove.errors import UnusableCache
from optrove.frameworks.ttnn.board.runtime import installed_package, prepare
from optrove.frameworks.ttnn.board.table import BOARDS

pytestmark = pytest.mark.ttnn

OPEN = """
import optrove
with optrove.mock_board("n300"):
    import ttnn
    device = ttnn.open_device(device_id=0)
    tile = ttnn.zeros([32, 32], dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    ttnn.matmul(tile, tile)
    ttnn.close_device(device)
print("done")
"""

PREPARE_FOR_EVER = """
import shutil
from pathlib import Path
from optrove.frameworks.ttnn.board.table import BOARDS
from optrove.frameworks.ttnn.board.runtime import prepare
from optrove.settings import cache_directory
cache = cache_directory()
while True:
    prepare(BOARDS["n300"], cache)
    for fixed in cache.glob("*/n300/fixed"):
        shutil.rmtree(fixed)
"""


def start(cache, directory, script=OPEN):
    return subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=directory,
        env=os.environ | {"OPTROVE_CACHE": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process):
    output = process.communicate(timeout=120)[0]
    assert (process.returncode, output) == (0, "done\n"), output


def test_eight_processes_on_a_cold_cache_all_succeed(tmp_path):
    processes = [start(tmp_path / "cache", tmp_path) for _ in range(8)]
    for process in processes:
        finish(process)


def test_processes_at_the_same_time_have_kernel_caches_of_their_own(tmp_path):
    runtimes = [prepare(BOARDS["n300"], tmp_path) for _ in range(3)]
    assert len({runtime.kernels for runtime in runtimes}) == 3
    assert len({runtime.root for runtime in runtimes}) == 1


@pytest.mark.parametrize("milliseconds", [100, 200, 300, 400, 600])
def test_a_process_killed_at_any_moment_does_not_break_the_next(tmp_path, milliseconds):
    victim = start(tmp_path / "cache", tmp_path)
    time.sleep(milliseconds / 1000)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    finish(start(tmp_path / "cache", tmp_path))


def test_a_process_killed_while_it_builds_the_files_does_not_break_the_next(tmp_path):
    cache = tmp_path / "cache"
    victim = start(cache, tmp_path, PREPARE_FOR_EVER)
    deadline = time.monotonic() + 60
    while not list(cache.glob("*/n300/making-*")):
        assert time.monotonic() < deadline, "the victim never built anything"
        assert victim.poll() is None
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    finish(start(cache, tmp_path))
    assert not list(cache.glob("*/n300/making-*"))


def test_what_a_killed_process_left_beside_whole_files_is_removed(tmp_path):
    runtime = prepare(BOARDS["n300"], tmp_path)
    left = runtime.root.parent.parent / "making-killed"
    (left / "old").mkdir(parents=True)
    prepare(BOARDS["n300"], tmp_path)
    assert not left.exists()


def damage_compiler(fixed):
    (fixed / "metal/runtime/sfpi/compiler/bin/riscv-tt-elf-g++").write_text("#!/bin/sh\nexit 1\n")


def damage_descriptor(fixed):
    text = (fixed / "cluster.yaml").read_text()
    (fixed / "cluster.yaml").write_text(text[: len(text) // 2])


def damage_links(fixed):
    (fixed / "metal/tt_metal").unlink()


def damage_link_target(fixed):
    (fixed / "metal/tt_metal").unlink()
    (fixed / "metal/tt_metal").symlink_to("/nowhere")


def damage_everything(fixed):
    shutil.rmtree(fixed)
    fixed.mkdir()


@pytest.mark.parametrize(
    "damage",
    [damage_compiler, damage_descriptor, damage_links, damage_link_target, damage_everything],
)
def test_damaged_files_are_recreated(tmp_path, damage):
    cache = tmp_path / "cache"
    fixed = prepare(BOARDS["n300"], cache).descriptor.parent
    damage(fixed)
    finish(start(cache, tmp_path))


def test_kernels_of_a_process_that_did_not_end_in_order_are_dropped(tmp_path):
    cache = tmp_path / "cache"
    finish(start(cache, tmp_path))
    (home,) = cache.glob("*/n300")
    kept = home / "jit-0-0" / "marker"
    kept.write_text("a warm cache")
    finish(start(cache, tmp_path))
    assert kept.exists()
    for generation, left_behind in enumerate(["in use", "damaged"], start=1):
        (home / "jit-0.lock").write_text(left_behind)
        finish(start(cache, tmp_path))
        assert not kept.exists()
        assert [path.name for path in home.glob("jit-0-*")] == [f"jit-0-{generation}"]


PARENT = """
import os, signal, subprocess, sys
import optrove
with optrove.mock_board("n300"):
    child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
    print(child.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""

CHILD = """
import os, select
from pathlib import Path
kernels = Path(os.environ["TT_METAL_CACHE"])
while not select.select([0], [], [], 0)[0]:  # until the other end of its input is closed
    for number in range(100):
        kernels.joinpath(str(number)).mkdir(parents=True, exist_ok=True)
"""


def test_a_child_that_outlives_its_killed_parent_does_not_break_the_next(tmp_path):
    cache = tmp_path / "cache"
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD],
        env=os.environ | {"OPTROVE_CACHE": str(cache)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        parent.stdout.readline()
        parent.wait(timeout=60)
        finish(start(cache, tmp_path))
        parent.stdin.close()
        parent.stdout.read()  # until the child has ended


@pytest.mark.parametrize("cache", ["/proc/optrove", "/tmp/with space/cache"])  # noqa: S108 - never made
def test_a_cache_that_cannot_be_used_is_an_error_that_says_what_to_set(cache):
    with pytest.raises(UnusableCache, match="Set OPTROVE_CACHE to a") as caught:
        prepare(BOARDS["n300"], Path(cache))
    assert cache in str(caught.value)


def run_doctor(cache, without=()):
    command = [sys.executable, "-m", "optrove", "doctor", "--json"]
    environment = os.environ | {"OPTROVE_CACHE": str(cache)}
    environment = {name: value for name, value in environment.items() if name not in without}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    states = {part["part"]: part for part in json.loads(done.stdout)["findings"]}
    return done.returncode, states["boards: mock"]


def test_the_doctor_opens_a_mock_board(tmp_path):
    code, finding = run_doctor(tmp_path)
    assert (code, finding["state"]) == (0, "ok")


def test_a_mock_board_opens_without_a_home_directory_in_the_environment(tmp_path):
    code, finding = run_doctor(tmp_path, without=("HOME",))
    assert (code, finding["state"]) == (0, "ok")


def test_the_doctor_says_what_is_wrong_with_a_mock_board():
    code, finding = run_doctor("/proc/optrove")
    assert (code, finding["state"]) == (1, "broken")
    assert "Set OPTROVE_CACHE to a directory" in finding["detail"]


def test_nothing_is_written_where_ttnn_is_installed(tmp_path):
    def entries():
        return {path for path in installed_package().rglob("*") if "__pycache__" not in path.parts}

    before = entries()
    finish(start(tmp_path / "cache", tmp_path))
    assert entries() == before
