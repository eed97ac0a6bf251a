import re
import subprocess
import sys
from pathlib import Path

import pytest

from example_runs import users_environment

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANSWERS_BY_EXIT_CODE = ("optrove check-board", "optrove diff", "optrove sweep --import")

# What differs from one run to the next: times, ids, dates, numbers with a fraction, sizes, spaces.
VARYING = re.compile(
    r"(?P<time>\d+(?:\.\d+)? (?:us|ms|s)\b)|(?P<id>\b[0-9a-f]{12}\b)"
    r"|(?P<date>\d{4}-\d\d-\d\d \d\d:\d\d)|(?P<size>\d+ kB)"
    r"|(?P<number>\d+(?:\.\d+)+)|(?P<space>\s+)"
)
PATTERNS = {
    "time": r"\d+(?:\.\d+)? (?:us|ms|s)",
    "id": r"[0-9a-f]{12}",
    "date": r"\d{4}-\d\d-\d\d \d\d:\d\d",
    "size": r"\d+ kB",
    "number": r"\d+(?:\.\d+)*",
    "space": r"\s+",
}


def typed(block):
    """Yield each command of a block, and the lines that are to follow it."""
    lines = iter(block.splitlines())
    command, expected = None, []
    for line in lines:
        if not line.startswith("$ "):
            expected.append(line)
            continue
        if command is not None:
            yield command, expected
        command, expected = line[2:], []
        if command.endswith("<<'EOF'"):
            while not command.endswith("\nEOF"):
                command += "\n" + next(lines)
    yield command, expected


def pattern_of(line):
    """Return a pattern that matches a line of the page in any run."""
    parts, at = [], 0
    for found in VARYING.finditer(line):
        parts += [re.escape(line[at : found.start()]), PATTERNS[found.lastgroup]]
        at = found.end()
    return re.compile("".join([*parts, re.escape(line[at:])]))


def missing(expected, output):
    """Return the first line of the page that does not follow those before it in the output."""
    shown = iter(output.splitlines())
    for line in expected:
        pattern = pattern_of(line.strip())
        if line.strip() not in ("", "...") and not any(map(pattern.search, shown)):
            return line
    return None


@pytest.mark.ttnn
@pytest.mark.torch
@pytest.mark.slow
def test_the_tutorial_shows_what_its_commands_print(tmp_path):
    type_all((DOCS / "tutorial.md").read_text(), tmp_path)


@pytest.mark.torch
@pytest.mark.slow
def test_the_page_for_pytorch_users_shows_what_its_commands_print(tmp_path):
    page = (DOCS / "pytorch.md").read_text()
    type_all(page.split("## From a program to a failing kernel")[1].split("\n## ")[0], tmp_path)


def type_all(text, directory):
    """Type the commands of a text, each of which must print the lines below it."""
    environment = users_environment()
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    session = [step for block in BLOCK.findall(text) for step in typed(block)]
    assert len(session) > 6
    for command, expected in session:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        allowed = (0, 1) if command.startswith(ANSWERS_BY_EXIT_CODE) else (0,)
        assert done.returncode in allowed, command + "\n" + done.stdout
        assert missing(expected, done.stdout) is None, command + "\n" + done.stdout


def test_a_line_that_was_not_printed_is_missed():
    output = "exit code 0, 2 passed, 9 s\n18 calls, 16 cases"
    assert missing(["exit code 0, 2 passed, 6.1 s", "...", "18 calls, 16 cases"], output) is None
    assert missing(["17 calls, 16 cases"], output) == "17 calls, 16 cases"
