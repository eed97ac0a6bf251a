"""A run that ended early says so everywhere, whatever ended it, and can be completed."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import commands
from asking import ask
from held_command import DONE
from optrove.trove.place import place_of
from optrove.web.answering import TroveSite
from optrove.web.app import make_app

pytestmark = [pytest.mark.ttnn, pytest.mark.slow]

SUPPORT = Path(__file__).parents[1] / "support"
LIMIT_SECONDS = 120
CASES = 30

MODEL = """
import os
import re
import resource
import sys
import time
from pathlib import Path

import ttnn

marker, how, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])


def call(size):
    shape = ttnn.Shape([1, 1, 32, 32 * size])
    where = (ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
    ttnn.relu(ttnn.allocate_tensor_on_device(shape, *where))


device = ttnn.open_device(device_id=0)
call(1)
call(2)
marker.write_text(str(os.getpid()))
if how == "wait":
    time.sleep(36_000)
if how == "full":
    files = [each for each in Path(os.environ["JOURNALS"]).rglob("*.lines")]
    size = max(each.stat().st_size for each in files)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
for size in range(3, count + 1):
    call(size)
ttnn.close_device(device)
"""

WORDS = {
    "trace": ("trace", "model.py", "--board", "n150"),
    "replay": ("replay", "relu", "--all", "--board", "n150", "--jobs", "1"),
    "check-board": ("check-board", "n150", "--op", "relu", "--jobs", "1"),
    "sweep": ("sweep", "relu", "--board", "n150", "--jobs", "1"),
}
ENDINGS = ("interrupted", "disk_full", "killed")
EXITS = {"interrupted": 130, "out_of_budget": 1, "disk_full": 2, "killed": -signal.SIGKILL}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A directory with a program and the trove of its cases."""
    directory = tmp_path_factory.mktemp("recorded")
    (directory / "model.py").write_text(MODEL)
    target = ("--", directory / "marker", "go", CASES)
    process = start(directory, "-m", "optrove", *WORDS["trace"], "--store", "trove.db", *target)
    output, _ = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 0, output
    return directory


@pytest.fixture
def project(recorded, tmp_path, monkeypatch):
    """A copy of the directory, which is the current one."""
    for name in ("model.py", "trove.db"):
        shutil.copy(recorded / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPTROVE_STORE", "trove.db")
    for name in ("OPTROVE_BOARD", "OPTROVE_SHADOW"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def start(directory, *words):
    """Start a Python in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "JOURNALS": str(directory / "trove.db.journals")},
    )


def ended(process, marker, ending):
    """Let a command come to its marker, have it end so, and return its output."""
    latest = time.monotonic() + LIMIT_SECONDS
    while (
        not (marker.exists() and marker.read_text())
        and process.poll() is None
        and time.monotonic() < latest
    ):
        time.sleep(0.01)
    if ending == "interrupted":
        # As a terminal does for Ctrl-C.
        os.killpg(process.pid, signal.SIGINT)
    if ending == "killed":
        os.killpg(process.pid, signal.SIGKILL)
        if (held := int(marker.read_text())) != process.pid:
            # A traced program has a group of its own.
            os.kill(held, signal.SIGKILL)
    output, _ = process.communicate(timeout=LIMIT_SECONDS)
    return output


def states(run_id, kind):
    """Return the state of a run as every command and page tells it: states, and texts."""
    (row,) = [row for row in commands.ask("runs", "--json") if row["run_id"] == run_id]
    (line,) = [line for line in commands.ask("runs").splitlines() if line.startswith(run_id[:12])]
    site = TroveSite(place_of("trove.db"), "trove.db")
    try:
        app = make_app(site)
        page = ask(app, "/run", id=run_id)
        pages = [
            ask(app, "/run", id=run_id, format="json").data,
            ask(app, "/progress", run=run_id, format="json").data,
            *(
                each
                for each in ask(app, "/runs", format="json").data["runs"]
                if each["run_id"] == run_id
            ),
        ]
    finally:
        site.close()
    found = {row["state"], *(each["state"] for each in pages)}
    texts = {line, page.text, *(each["state_text"] for each in pages)}
    if kind != "trace":
        data = commands.ask("results", run_id, "--json", exit_code=1)
        assert not data["complete"]
        assert data["reasons"]["incomplete"] == data["counts"]["not_attempted"]
        found.add(data["state"])
        texts.add(commands.ask("results", run_id, exit_code=1))
    return found, texts


def last_run(kind):
    """Return the id of the last run of a kind."""
    kinds = {"trace": "trace", "sweep": "sweep"}
    wanted = kinds.get(kind, "replay")
    return next(row["run_id"] for row in commands.ask("runs", "--json") if row["kind"] == wanted)


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        *((kind, ending) for kind in ("replay", "check-board", "sweep") for ending in ENDINGS),
        ("sweep", "out_of_budget"),
    ],
)
def test_a_run_of_cases_that_ended_early(project, kind, ending):
    how = {"out_of_budget": "budget", "disk_full": "full"}.get(ending, "wait")
    budget = ("--budget", "3s") if how == "budget" else ()
    marker = project / "marker"
    words = (SUPPORT / "held_command.py", marker, how, *WORDS[kind], *budget)
    process = start(project, *words)
    output = ended(process, marker, ending)
    assert process.returncode == EXITS[ending], output
    run_id = last_run(kind)
    found, texts = states(run_id, kind)
    assert found == {ending}
    # What was done in the last second may be lost.
    done = "[012]" if ending in ("killed", "disk_full") else str(DONE)
    text = f"incomplete, {done} of {CASES}, {ending.replace('_', ' ')}"
    for each in texts:
        assert re.search(text, each), each
    completed = commands.ask(*WORDS[kind], "--resume", "--json")
    assert completed["state"] == "complete"
    assert completed["counts"] == {"passed": CASES}
    (row,) = [row for row in commands.ask("runs", "--json") if row["run_id"] == run_id]
    assert (row["state"], row["good"], row["ran"]) == ("complete", CASES, CASES)


@pytest.mark.parametrize("ending", EXITS)
def test_a_trace_that_ended_early(project, ending):
    timeout = ("--timeout", "5") if ending == "out_of_budget" else ()
    how = "full" if ending == "disk_full" else "wait"
    marker = project / "marker"
    target = ("--", marker, how, CASES + 5)
    process = start(project, "-m", "optrove", *WORDS["trace"], *timeout, *target)
    output = ended(process, marker, ending)
    assert process.returncode == {**EXITS, "disk_full": 0}[ending], output
    found, texts = states(last_run("trace"), "trace")
    state = "killed" if ending == "out_of_budget" else ending
    assert found == {state}
    assert all(f"incomplete, {state.replace('_', ' ')}" in text for text in texts)
    if ending == "disk_full":
        assert "x the journal could not be written" in output
