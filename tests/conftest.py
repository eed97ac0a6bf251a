"""Settings of all tests."""

import os
import signal
import threading
import time
from contextlib import nullcontext
from functools import partial

import pytest
from hypothesis import HealthCheck, settings

from forked_python import python, traces_in_forks

pytest_plugins = ("parts",)

# How long an example takes says something about the machine, not about the code.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

# Many small ops on few numbers, in several processes at once: threads of torch would only wait for
# each other, and take twice the time of the processor for it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts background jobs with interrupts ignored, and the processes that tests start would
# inherit that; some of these are interrupted on purpose.
if (
    threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The plugin of schemathesis imports all of it when a session begins, and that of hypothesis all of
# hypothesis when it ends; pytest's own for exceptions that nobody sees collects all garbage several
# times. Each takes longer than the sessions that tests start, and none of these uses it.
QUICK = "-p no:schemathesis -p no:hypothesispytest -p no:anyio -p no:unraisableexception"


def pytest_collection_modifyitems(items):
    """Begin with the files that take long: what ends last should be short.

    Workers of pytest-xdist take whole files from this list, since what the tests of a file share
    often takes longer to make than the tests take to run.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(autouse=True, scope="session")
def quick_sessions():
    """Spare the sessions that tests start what they do not need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_ADDOPTS", QUICK, prepend=" ")
        # Each of hundreds of processes would compile all of optrove for itself.
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture(autouse=True, scope="module")
def quick_traces(request):
    """Let the programs that are traced by modules of tests with torch find it imported."""
    with traces_in_forks() if request.node.get_closest_marker("torch") else nullcontext():
        yield


@pytest.fixture
def pytester(pytester, monkeypatch):
    """Give pytest's own fixture, which has taken that variable away, with it.

    Where torch is not hidden from them, its sessions are forks of a process that has imported it.
    """
    monkeypatch.setenv("PYTEST_ADDOPTS", QUICK)
    if "without_torch" not in os.environ.get("PYTHONPATH", ""):
        monkeypatch.setattr(pytester, "runpytest_subprocess", partial(forked_session, pytester))
    return pytester


def forked_session(pytester, *options):
    """Run pytest as ``pytester.runpytest_subprocess`` does."""
    start = time.monotonic()
    base = pytester.path / "basetemp"
    words = ("-m", "pytest", f"--basetemp={base}", *options)
    done = python(*words, cwd=pytester.path)
    lines = (done.stdout.splitlines(), done.stderr.splitlines())
    return pytest.RunResult(done.returncode, *lines, time.monotonic() - start)
