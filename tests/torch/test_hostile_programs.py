"""Programs that were generated of a hostile log run, and run no code of the log."""

import subprocess
import sys

import pytest

import commands

pytestmark = pytest.mark.torch

COMMAND = "__import__('os').system('touch PWNED')"
TEXTS = [
    f'"""\n{COMMAND}\n"""',
    f"'+{COMMAND}+'",
    f'"+{COMMAND}+"',
    "{{ ''.__class__ }}{% for x in [] %}\\\\\"'''\\N{DIGIT ONE}\\",
    f"\\\n{COMMAND}#",
    f"\r{COMMAND}\r",
    f"\u2028{COMMAND}\u2029",
]


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls = [
        "Operator: aten.add.Tensor\ncnt: 1, ((T([2, 3], f32), T([2, 3], f32)), {})\n",
        f"Operator: os.system.default\ncnt: 1, (({COMMAND!r},), {{}})\n",
        *(
            f"Operator: aten.div.Tensor_mode\n"
            f"cnt: 1, ((T([2, 3], f32), T([2, 3], f32)), {{'rounding_mode': {text!r}}})\n"
            for text in TEXTS
        ),
    ]
    (tmp_path / "log.txt").write_text("".join(calls), newline="")
    commands.ask("import", "log.txt", "--store", "trove.db")
    return "trove.db"


def run(*words):
    command = [sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_tests_and_standalone_files_run_no_code_of_a_log(store, tmp_path):
    filters = ("--all-ops", "--nested", "--store", store)
    for words in (("-o", "tests"), ("--standalone", "-o", "alone")):
        assert commands.run("testgen", "*", *filters, *words).exit_code == 0
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert f"{len(TEXTS)} failed, 1 passed" in done.stdout, done.stdout
    files = [*(tmp_path / "alone").glob("*.py")]
    assert len(files) == len(TEXTS) + 1
    assert sorted(run(str(file)).returncode for file in files) == [0] + [1] * len(TEXTS)
    assert not [*tmp_path.rglob("PWNED")]
