"""What the plugin does when nobody asks for anything: nothing."""

import sys

import pytest

from optrove import pytest_plugin

MODULES = """
    import sys

    def test_modules():
        found = {name for name in sys.modules if name.split(".")[0] == "optrove"}
        assert found == {"optrove", "optrove.pytest_plugin"}

    def test_the_fixture_for_metrics_is_there(record_metric):
        record_metric("pcc", 1.0)
        test_modules()
"""


@pytest.mark.parametrize("processes", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_nothing_else_of_optrove_is_imported(pytester, monkeypatch, processes):
    for name in pytest_plugin.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    pytester.makepyfile(MODULES)
    fresh = pytester.run(sys.executable, "-m", "pytest", *processes)
    fresh.assert_outcomes(passed=2)
