"""The options and fixtures of optrove for pytest: ``pytest --ops-jsonl ops.jsonl``.

Everything is off by default. Without an option or a variable that switches a part on, nothing else
of optrove is imported, and nothing is patched.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

# The options, by flag; optrove.pytest_plugin.start starts the parts that they switch on.
_FLAGS: dict[str, dict[str, Any]] = {
    "--optrove-board": {
        "metavar": "NAME",
        "help": "run ttnn on this mock board, for example t3k (env OPTROVE_BOARD; optrove boards)",
    },
    "--optrove-shadow": {
        "action": "store_true",
        "help": "compute numbers on the mock board, with torch (env OPTROVE_SHADOW)",
    },
    "--optrove-numerics": {
        "choices": ("hardware", "ideal"),
        "help": "how --optrove-shadow computes numbers: hardware, as ttnn's kernels do, where "
        "optrove knows how; or ideal, in float32 (env OPTROVE_NUMERICS; default: ideal)",
    },
    "--optrove-sim": {
        "metavar": "BOARD",
        "help": "run ttnn with its real kernels on this simulated board (needs OPTROVE_SIM)",
    },
    "--results-csv": {
        "metavar": "PATH",
        "help": "append one line per test, with its metrics, to a file (env TT_TEST_RESULTS_CSV)",
    },
    "--ops-jsonl": {
        "metavar": "PATH",
        "help": "append one JSON line per op call to a file (env TT_OP_RESULTS_JSONL)",
    },
    "--trace-params": {
        "action": "store_true",
        "help": "write one JSON file per op call; removed after the session",
    },
    "--trace-params-with-values": {
        "action": "store_true",
        "help": "with --trace-params: also write the values of tensors; large and slow",
    },
    "--trace-params-keep": {
        "action": "store_true",
        "help": "with --trace-params: keep the files after the session",
    },
    "--optrove-store": {
        "metavar": "PATH|URL",
        "help": "trace op calls into this trove",
    },
    "--optrove-backend": {
        "choices": ("auto", "ttnn", "torch"),
        "help": "the framework to trace; auto: ttnn if it is imported, else torch",
    },
    "--optrove-level": {
        "choices": ("aten", "api"),
        "help": "for torch: aten, what the dispatcher runs; api, also the functions that call it",
    },
    "--optrove-include": {
        "action": "append",
        "metavar": "OPS",
        "help": "trace only these ops: add, ttnn.add, 'ttnn.experimental.*'; separated by commas",
    },
    "--optrove-exclude": {
        "action": "append",
        "metavar": "OPS",
        "help": "trace all ops except these",
    },
    "--optrove-model": {
        "metavar": "NAME",
        "help": "the name of the model in the source of the trace (env HF_MODEL)",
    },
    "--optrove-capsule": {
        "action": "append",
        "metavar": "WHICH",
        "help": "keep the tensors of these calls: an op, a case, worst, first, every:N, all",
    },
    "--optrove-capsule-limit": {
        "metavar": "SIZE",
        "help": "the maximum size of the capsules of a run (default 1GB)",
    },
    "--optrove-flow": {
        "action": "store_true",
        "help": "record which output became which input, to replay sequences of calls",
    },
    # The options that `optrove trace` passes to pytest.
    "--optrove-journal": {"metavar": "DIR", "help": argparse.SUPPRESS},
    "--optrove-run-id": {"metavar": "ID", "help": argparse.SUPPRESS},
    "--optrove-params-dir": {"metavar": "DIR", "help": argparse.SUPPRESS},
    "--optrove-params-values": {"action": "store_true", "help": argparse.SUPPRESS},
    "--optrove-sketch": {"action": "store_true", "help": argparse.SUPPRESS},
}

OPTIONS = tuple(flag[2:].replace("-", "_") for flag in _FLAGS)
"""The names under which argparse keeps their values."""

# The names in optrove.settings, which is not imported unless needed.
VARIABLES = ("OPTROVE_BOARD", "OPTROVE_SHADOW", "TT_OP_RESULTS_JSONL", "TT_TEST_RESULTS_CSV")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our options in their own group, except those that others have already added."""
    groups = [*parser._groups, parser._anonymous]  # noqa: SLF001 - there is no public list of options
    taken = {name for group in groups for option in group.options for name in option.names()}
    ours = parser.getgroup("optrove", "optrove: record op calls, with or without a board")
    for flag, attributes in _FLAGS.items():
        if flag not in taken:
            ours.addoption(flag, **attributes)
    _give_way(parser, ours)


def _give_way(parser: pytest.Parser, ours: pytest.OptionGroup) -> None:
    """Drop an option of ours when a conftest adds it, which would otherwise be an error.

    tt-metal's conftests add some of them. By then ours have been read, since that happens before
    any conftest is imported.
    """
    get_group, add = parser.getgroup, parser.addoption

    def giving_way(original: Callable[..., None]) -> Callable[..., None]:
        def addoption(*names: str, **attributes: Any) -> None:
            _drop(parser, ours, names)
            original(*names, **attributes)

        return addoption

    def getgroup(*arguments: Any, **keywords: Any) -> pytest.OptionGroup:
        group = get_group(*arguments, **keywords)
        if "addoption" not in vars(group):
            vars(group)["addoption"] = giving_way(group.addoption)
        return group

    vars(parser).update(addoption=giving_way(add), getgroup=getgroup)


def _drop(parser: pytest.Parser, group: pytest.OptionGroup, names: tuple[str, ...]) -> None:
    for option in [one for one in group.options if not set(names).isdisjoint(one.names())]:
        group.options.remove(option)
        # pytest hands options to argparse when they are added, before version 9 when it parses.
        action: Any = getattr(option, "_action", None)
        if action is not None:
            for name in action.option_strings:
                del parser.optparser._option_string_actions[name]  # noqa: SLF001 - as argparse resolves conflicts
            action.container._remove_action(action)  # noqa: SLF001 - likewise


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Start the requested parts before any conftest or test module can import ttnn."""
    options = early_config.known_args_namespace
    given = any(getattr(options, name, None) not in (None, False) for name in OPTIONS)
    if given or any(os.environ.get(name) for name in VARIABLES):  # noqa: TID251 - settings would have to be imported
        from optrove.pytest_plugin.start import start

        start(early_config)


@pytest.fixture
def record_metric(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Record a number that the test measured: ``record_metric("pcc", 0.9998)``.

    It becomes a property of the test, as with ``record_property``, and a metric in the line of
    ``--results-csv``, with the ``threshold`` and whether it ``passed``.
    """

    def record(
        name: str, value: Any, *, threshold: float | None = None, passed: bool | None = None
    ) -> None:
        # A number of torch or numpy cannot be sent between processes.
        entry = (name, value.item() if hasattr(value, "item") else value)
        request.node.user_properties.append(entry)
        observer = request.config.pluginmanager.get_plugin("optrove-observer")
        if observer is not None:
            observer.record(request.node, entry, threshold, passed)

    return record
