"""Programs that were generated of hostile files run on a mock board, and run no code of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import commands
import masters
from small_trove import imported, make_trove, run_of
from trove_rows import case, tensor

pytestmark = pytest.mark.ttnn

COMMAND = "__import__('os').system('touch PWNED')"
TEXTS = [
    f'"""\n{COMMAND}\n"""',
    f"'+{COMMAND}+'",
    "{{ ''.__class__ }}{% for x in [] %}\\\\\"'''\\N{DIGIT ONE}\\",
    f"\\\n{COMMAND}#",
]


def write_files(directory):
    """Write a file of each format, with code in texts and in the name of an op."""
    ops = ("ttnn.add", "ttnn.os.system")
    configurations = {
        op: {
            "configurations": [
                masters.configuration({"a": text}, number=number * 10 + at)
                for at, text in enumerate(TEXTS)
            ]
        }
        for number, op in enumerate(ops, 1)
    }
    about = {"models": [COMMAND], "last_updated": "2026-03-08 13:48:13"}
    master = directory / "master.json"
    master.write_text(json.dumps({"operations": configurations, "metadata": about}))
    facts = {"run_id": "run", "test_nodeid": f"x\n{COMMAND}", "module": None, "output": None}
    calls = [(op, text) for op in ops for text in TEXTS]
    lines = directory / "ops.jsonl"
    lines.write_text(
        "".join(
            json.dumps(
                {**facts, "op_index": at, "op_name": op, "inputs": [], "kwargs": {"b": text}}
            )
            + "\n"
            for at, (op, text) in enumerate(calls)
        )
    )
    parameters = directory / "operation_parameters"
    parameters.mkdir()
    for number, (op, text) in enumerate(calls):
        content = {"operation_id": number, "operation_name": op, "args": [], "kwargs": {"c": text}}
        path = parameters / f"{number}_ttnn_add_20260115_104616_{345670 + number}.json"
        path.write_text(json.dumps(content))
    run = run_of("ab" * 16, f'"""\n{COMMAND}')
    cases = [(case(op, a=tensor(32, 32), d=text), 1) for op, text in calls]
    return master, lines, parameters, make_trove(directory / "sent.db", imported(run, cases))


def run(*words):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_tests_and_sequences_of_hostile_files_run_none_of_their_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in write_files(tmp_path):
        commands.ask("import", file, "--store", "trove.db")
    done = commands.run("testgen", "*", "--all-ops", "-o", "made", "--store", "trove.db")
    assert done.exit_code == 0, done.output
    assert "system" not in {path.stem for path in Path("made").glob("*.py")}
    alone = commands.run(
        "testgen", "add", "--all-ops", "--standalone", "-o", "made", "--store", "trove.db"
    )
    assert alone.exit_code == 0, alone.output
    ran = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "made", "--optrove-board", "n150")
    assert " failed" in ran.stdout, ran.stdout + ran.stderr
    assert " error" not in ran.stdout.splitlines()[-1]
    assert not [*tmp_path.rglob("PWNED")]
