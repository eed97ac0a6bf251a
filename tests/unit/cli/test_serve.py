import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from click.testing import CliRunner

from optrove.cli.ask import serve
from optrove.cli.main import main
from parts import needs
from small_trove import LLAMA_IMPORT, make_trove

SERVE = "import sys; from optrove.cli.ask import serve; serve(sys.argv[1:])"


@pytest.fixture
def trove(tmp_path):
    return str(make_trove(tmp_path / "trove.db", LLAMA_IMPORT))


def failed(*arguments):
    main.add_command(serve)
    done = CliRunner().invoke(main, ["serve", *arguments])
    assert done.exit_code == 2
    return done.output


def test_without_its_packages_the_error_says_what_to_install(trove, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("optrove.web")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert "pip install 'optrove[web]'" in failed("--store", trove)


def test_other_machines_see_nothing_without_a_token(trove):
    needs("uvicorn")
    said = failed("--store", trove, "--host", "0.0.0.0")  # noqa: S104 - to be refused
    assert "--token" in said
    assert "on this machine only" in said
    assert "at least 8 ASCII characters" in failed("--store", trove, "--token", "short")


def test_a_trove_that_is_not_there_is_said(tmp_path):
    needs("uvicorn")
    assert "there is no trove" in failed("--store", str(tmp_path / "none.db"))


def test_a_port_that_is_taken_is_said(trove):
    needs("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = failed("--store", trove, "--port", str(taken.getsockname()[1]))
    assert "choose another with --port" in said


def test_pages_are_served_until_interrupted(trove):
    needs("uvicorn")
    command = [sys.executable, "-c", SERVE, "--store", trove, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        address = re.search(r"http://127\.0\.0\.1:\d+/", server.stderr.readline()).group()
        with urllib.request.urlopen(f"{address}ops") as answer:  # noqa: S310 - our own
            assert b"ttnn.matmul" in answer.read()
        server.send_signal(signal.SIGINT)
        _, said = server.communicate(timeout=60)
    assert "Traceback" not in said
