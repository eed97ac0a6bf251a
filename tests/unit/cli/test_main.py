import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click import unstyle
from click.testing import CliRunner

import optrove
from optrove.cli import without_hardware
from optrove.cli.main import SECTIONS, main
from optrove.cli.without_hardware import Finding, State, finding_lines, is_healthy
from optrove.frameworks.ttnn.board import simulator
from optrove.settings import VARIABLES
from sim_directory import fake_package, fake_simulator


def run(*arguments):
    return CliRunner().invoke(main, arguments)


def test_the_version_is_the_package_s():
    assert run("--version").output == f"optrove {optrove.__version__}\n"


@pytest.mark.parametrize("command", sorted(main.commands))
def test_every_command_has_help_with_an_example(command):
    help_text = run(command, "--help").output
    assert "Example:" in help_text
    assert f"optrove {command}" in help_text


def test_every_command_stands_in_the_first_page_of_help():
    shown = [command.name for commands in SECTIONS.values() for command in commands]
    assert sorted(shown) == sorted(main.commands)
    front = run("--help").output
    assert [name for name in shown if f"\n  {name} " not in front] == []
    assert "..." not in front.partition("Record:")[2]


def test_the_first_page_of_help_tells_every_variable():
    help_text = run("--help").output
    assert all(variable.name in help_text and variable.help in help_text for variable in VARIABLES)


def test_importing_the_command_line_imports_no_framework():
    script = (
        "import sys, optrove.cli.main, optrove.pytest_plugin; "
        "print(sorted({'ttnn', 'torch', 'numpy', 'loguru', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_boards_are_listed_for_people():
    result = run("boards")
    assert result.exit_code == 0
    assert "bh-galaxy" in result.output
    assert "12x10" in result.output


def test_boards_are_listed_for_machines():
    rows = json.loads(run("boards", "--json").output)
    n300 = next(row for row in rows if row["board"] == "n300")
    assert n300["chips"] == 2
    assert n300["mesh_shapes"] == [[1, 2], [2, 1]]
    assert n300["compute_grid"] == [8, 8]


def test_an_error_of_ours_ends_with_two_and_one_line():
    result = run("doctor", "--board", "n3000")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: no board is called 'n3000'.")
    assert result.stdout == ""


def test_a_command_that_goes_by_another_name_is_named():
    result = run("compare", "a", "b")
    assert result.exit_code == 2
    assert "optrove diff" in result.stderr
    assert "optrove results --compare" in result.stderr


def test_the_doctor_tells_every_part_to_machines(monkeypatch):
    # The processes that open boards do without torch, which takes longer to import than all else.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "support" / "without_torch"))
    result = run("doctor", "--json")
    report = json.loads(result.output)
    parts = {finding["part"] for finding in report["findings"]}
    assert {"Python", "ttnn", "torch", "boards: real", "boards: mock", "store: SQLite"} <= parts
    assert all(finding["remedy"] for finding in report["findings"] if finding["state"] != "ok")
    assert result.exit_code == (0 if report["healthy"] else 1)


def test_the_doctor_tells_people_every_word_in_lines_that_they_can_read():
    remedy = " ".join(f"do{place}" for place in range(40))
    findings = [Finding("Python", State.OK, "3.12"), Finding("x", State.MISSING, "none", remedy)]
    first, *rest = (unstyle(line) for line in finding_lines(findings))
    assert first == "ok       Python  3.12"
    assert rest[0] == "missing  x       none"
    assert " ".join(line.strip() for line in rest[1:]) == f"-> {remedy}"
    assert max(map(len, rest)) <= 100


REFUSAL = "[7] ERROR: UndefinedBehavior: noc_read: x=3"
THROWN = "TT_THROW @ build.cpp:70: tt::exception\ninfo:\nbrisc build failed\nbacktrace:\n --- libc"


@pytest.mark.parametrize(
    ("printed", "error", "problem"),
    [(REFUSAL, "a warning", REFUSAL), ("", THROWN, "brisc build failed"), ("", "", "exit code 1")],
)
def test_the_doctor_says_why_no_kernel_ran(monkeypatch, tmp_path, printed, error, problem):
    package = fake_package(tmp_path / "ttnn")
    monkeypatch.setattr(simulator, "installed_package", lambda: package)
    monkeypatch.setenv("OPTROVE_SIM", str(fake_simulator(tmp_path / "sim", "libttsim_bh.so")))
    script = f"import sys; print({printed!r}); sys.stderr.write({error!r}); sys.exit(1)"
    monkeypatch.setattr(without_hardware, "SIMULATOR_TRIAL", script)
    finding = without_hardware._simulated_boards(has_ttnn=True)
    assert finding.state is State.BROKEN
    assert finding.detail == f"p100 did not run: {problem}; sfpi 7.89.0"


def test_what_is_missing_is_healthy_and_what_is_broken_is_not():
    missing, broken = (Finding("x", state, "") for state in (State.MISSING, State.BROKEN))
    assert is_healthy((missing,))
    assert not is_healthy((missing, broken))


def test_an_interrupted_command_ends_as_programs_do_by_that_signal(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(without_hardware, "examine", interrupt)
    result = run("doctor")
    assert result.exit_code == 130
    assert result.stderr == "optrove: interrupted\n"


def test_python_dash_m_is_the_same_command():
    command = [sys.executable, "-m", "optrove", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"optrove {optrove.__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_that_asks_optrove(shell):
    done = run("completion", shell)
    assert done.exit_code == 0
    assert f"_OPTROVE_COMPLETE={shell}_complete" in done.output


def test_bash_completes_the_names_of_commands():
    if shutil.which("bash") is None:
        pytest.skip("this machine has no bash")
    script = run("completion", "bash").output
    asked = (
        'eval "$1"; COMP_WORDS=(optrove check-); COMP_CWORD=1; '
        '_optrove_completion optrove; echo "${COMPREPLY[*]}"'
    )
    done = subprocess.run(
        ["bash", "-c", asked, "bash", script],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"check-board", "check-release"} <= set(done.stdout.split())


def test_an_unknown_shell_is_refused_with_the_known_ones():
    done = run("completion", "tcsh")
    assert done.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in done.stderr


def test_an_interrupt_has_its_exit_code_whenever_it_comes(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("optrove.trove.opening.located", interrupted)
    done = run("runs")
    assert (done.exit_code, done.stderr) == (130, "optrove: interrupted\n")
