"""Run commands of optrove in this process."""

from __future__ import annotations

import json

from click.testing import CliRunner

from optrove.cli.main import main


def run(*words):
    """Run a command and return click's result."""
    return CliRunner().invoke(main, [str(word) for word in words])


def ask(*words, exit_code=0):
    """Run a command; return its JSON if it prints any, its errors if it is refused, or its text."""
    result = run(*words)
    assert result.exit_code == exit_code, result.output + repr(result.exception)
    if "--json" in words and result.stdout:
        return json.loads(result.stdout)
    if exit_code == 2:
        assert result.stdout == ""
        return result.stderr
    return result.stdout
