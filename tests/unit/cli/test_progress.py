import os
import pty
import subprocess
import sys

from optrove.cli import progress
from optrove.cli.progress import case_progress

SCRIPT = """
from optrove.cli.progress import case_progress
with case_progress(3, "checking n150") as watch:
    for passed in (True, False, True):
        watch.advance(passed=passed)
    watch.log("odd.crash: the process ended with signal 11")
"""


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    with case_progress(4, "checking n150") as watch:
        for passed in (True, False, True, True):
            watch.advance(passed=passed)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "optrove: 1 of 4 cases, 0 failed"
    assert lines[1].startswith("optrove: 2 of 4 cases, 1 failed, ")
    assert lines[1].endswith(" left")
    assert lines[3] == "optrove: 4 of 4 cases, 1 failed"


def test_a_case_that_was_not_run_has_not_failed(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)
    with case_progress(1, "replaying") as watch:
        watch.advance(passed=False, ran=False)
    assert capsys.readouterr().err == "optrove: 1 of 1 cases, 0 failed\n"


def test_work_that_is_soon_done_needs_no_line(capsys):
    with case_progress(2, "checking n150") as watch:
        watch.advance(passed=True)
        watch.advance(passed=True)
    assert capsys.readouterr().err == ""


def test_on_a_terminal_there_is_a_bar_with_rate_and_failures():
    master, terminal = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            stderr=terminal,
            stdout=subprocess.PIPE,
            env=os.environ | {"COLUMNS": "120", "TERM": "xterm"},
            check=True,
        )
        shown = os.read(master, 100_000).decode()
    finally:
        os.close(master)
        os.close(terminal)
    assert done.stdout == b""
    assert "checking n150" in shown
    assert "3/3" in shown
    assert "1 failed" in shown
    assert "optrove: odd.crash: the process ended with signal 11" in shown
