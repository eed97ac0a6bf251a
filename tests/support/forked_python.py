"""Run programs of Python in forks of a process that has imported torch.

Importing torch takes longer than most programs of these tests. What a program is given is the same
as in a process of its own: its words, directory, environment and descriptors. Tests of how
processes start, of children and of signals start real ones.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

LIMIT_SECONDS = 300
PRELOADED = ["torch", "pytest", "optrove.pytest_plugin.start", "optrove.cli.main"]


def python(*words, cwd=None, env=None, timeout=LIMIT_SECONDS):
    """Run ``python WORDS``, which begin with ``-c``, ``-m`` or a file; return what it printed."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = ForkedPython([sys.executable, *words], output, errors, cwd=cwd, env=env)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        for file in (output, errors):
            file.seek(0)
        return subprocess.CompletedProcess(words, code, output.read(), errors.read())


class ForkedPython:
    """A process that was forked, like a ``subprocess.Popen``, in a session of its own."""

    def __init__(
        self, command, stdout=None, stderr=None, *, cwd=None, env=None, start_new_session=True
    ):
        assert start_new_session
        words = [str(word) for word in command[1:]]
        variables = dict(os.environ if env is None else env)
        places = tuple(_place(*given) for given in ((stdout, 1), (stderr, 2)))
        arguments = (words, str(cwd or Path.cwd()), variables, places, _installed())
        self._process = _context().Process(target=_run, args=arguments)
        self._process.start()
        self.pid = self._process.pid

    def poll(self):
        return self._process.exitcode

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("python", timeout)
        return self._process.exitcode

    def kill(self):
        self._process.kill()
        self._process.join()


@contextmanager
def traces_in_forks():
    """Let ``optrove trace`` run its programs in such processes."""
    from optrove.tracing import launch  # not in the forked processes

    names = {"Popen": ForkedPython, "TimeoutExpired": subprocess.TimeoutExpired}
    launch.subprocess = SimpleNamespace(**names)
    try:
        yield
    finally:
        launch.subprocess = subprocess


def _place(file, own):
    """The path by which another process opens the same file."""
    if file == subprocess.DEVNULL:
        return os.devnull
    descriptor = own if file is None else file if isinstance(file, int) else file.fileno()
    return f"/proc/{os.getpid()}/fd/{descriptor}"


@cache
def _context():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


@cache
def _installed():
    """Where the standard library and what is installed are found."""
    variables = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", "import sys; print(*sys.path[1:], sep='\\n')"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def _run(words, directory, variables, places, installed):
    os.setsid()
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(directory)
    for descriptor, place in enumerate(places, start=1):
        file = os.open(place, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, descriptor)
        os.close(file)
    try:
        _set_path(words[0], variables.get("PYTHONPATH"), installed)
        if find_spec("sitecustomize"):
            import_module("sitecustomize")
        _run_words(words)
        code = 0
    except SystemExit as ended:
        code = _exit_code(ended)
    except BaseException:  # noqa: BLE001 - as Python does it
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _exit_code(ended):
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0
    sys.stderr.write(f"{ended.code}\n")
    return 1


def _set_path(how, places, installed):
    file = Path.cwd() / "main" if how.startswith("-") else Path(how).resolve()
    sys.path[:] = [str(file.parent), *(places.split(os.pathsep) if places else ()), *installed]


def _run_words(words):
    how, *rest = words
    sys.orig_argv = [sys.executable, *words]
    if how == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.modules["__main__"] = main = type(sys)("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)  # noqa: S102 - what -c means
    elif how == "-m":
        sys.argv = rest
        # Otherwise pytest warns that it was imported before assertions could be rewritten.
        sys.modules["optrove"].__doc__ = "PYTEST_DONT_REWRITE"
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(how, run_name="__main__")
