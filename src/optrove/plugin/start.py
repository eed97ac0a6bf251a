"""Start the parts of the plugin that the command line or the environment asks for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from optrove.errors import OptroveError
from optrove.plugin.session import Session
from optrove.settings import Settings, read_settings

if TYPE_CHECKING:
    from argparse import Namespace


def start(config: pytest.Config) -> None:
    """Register what is asked for, before any conftest or test module is imported."""
    options = config.known_args_namespace
    try:
        settings = read_settings()
        config.pluginmanager.register(Session(), "optrove-session")
        _start_results(config, options, settings)
        _start_board(config, options, settings)
        _start_tracing(config, settings)
    except OptroveError as error:
        raise pytest.UsageError(str(error)) from error


def _start_board(config: pytest.Config, options: Namespace, settings: Settings) -> None:
    # An empty name is one that a script forgot to fill in: not the same as no option at all.
    name = settings.board if options.optrove_board is None else options.optrove_board
    if options.optrove_shadow and name is None:
        raise pytest.UsageError("--optrove-shadow needs a mock board: add --optrove-board NAME")
    if name is not None:
        from optrove.plugin.board import start_board

        start_board(config, name, shadow=options.optrove_shadow or settings.shadow)


def _start_results(config: pytest.Config, options: Namespace, settings: Settings) -> None:
    given = getattr(options, "results_csv", None)
    path = settings.results_csv if given is None else given
    if path is None:
        return
    if not path:
        raise pytest.UsageError("--results-csv needs the path of a file, and got an empty one")
    from optrove.plugin.results import start_results

    start_results(config, config.invocation_params.dir / Path(path).expanduser())


def _start_tracing(config: pytest.Config, settings: Settings) -> None:
    from optrove.plugin.asked import asked_of

    asked = asked_of(config, settings)
    if asked is not None:
        from optrove.plugin.tracing import start_tracing

        start_tracing(config, asked)
