from pathlib import Path

from optrove import pytest_plugin

PAGE = (Path(__file__).parents[2] / "docs" / "pytest.md").read_text()


def test_every_option_that_help_shows_is_documented(pytester):
    shown = pytester.runpytest_subprocess("--help").stdout.str()
    flags = ["--" + name.replace("_", "-") for name in pytest_plugin.OPTIONS]
    public = [flag for flag in flags if f"  {flag}" in shown]
    assert len(public) > 10
    assert [flag for flag in public if f"`{flag}" not in PAGE] == []


def test_every_variable_that_asks_for_a_part_is_documented():
    assert [name for name in pytest_plugin.VARIABLES if f"`{name}`" not in PAGE] == []
