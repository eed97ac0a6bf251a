"""Commands that end early, and what every command and page says of their runs."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import commands
from asking import ask
from optrove.trove.place import place_of
from optrove.web.answering import TroveSite
from optrove.web.app import make_app

SUPPORT = Path(__file__).parent
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

TRACE = ("trace", "model.py", "--board", "n150")
EXITS = {"interrupted": 130, "out_of_budget": 1, "disk_full": 2, "killed": -signal.SIGKILL}


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
        answer = commands.run("results", run_id, "--json")
        data = json.loads(answer.stdout)
        assert answer.exit_code == (1 if data["ran"] else 2)
        assert not data["complete"]
        assert data["reasons"]["incomplete"] == data["counts"]["not_attempted"]
        found.add(data["state"])
        texts.add(commands.run("results", run_id).stdout)
        commands.run("report", run_id, "-o", "ended.html")
        texts.add(Path("ended.html").read_text(encoding="utf-8"))
    return found, texts


def last_run(kind):
    """Return the id of the last run of a kind."""
    kinds = {"trace": "trace", "sweep": "sweep"}
    wanted = kinds.get(kind, "replay")
    return next(row["run_id"] for row in commands.ask("runs", "--json") if row["kind"] == wanted)
