"""Run a command of optrove that ends early: ``held_command.py MARKER HOW COMMAND...``.

After two cases it touches the file MARKER. Then it waits to be ended (``wait``), or goes on: when
the budget is over (``budget``), or without another page in the trove (``full``). The command, its
engine and its workers are the real ones.
"""

import sqlite3
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

from optrove.cli.main import main
from optrove.replay.runner import run_jobs
from optrove.sweep import sweeping

DONE = 2
HOURS = 36_000


def held(marker, how, jobs, *, workers, **options):
    """Execute jobs, and wait after the first ones."""
    rest = iter(jobs)
    yield from run_jobs(list(islice(rest, DONE)), workers=replace(workers, until=None), **options)
    marker.touch()
    if how == "wait":
        time.sleep(HOURS)
    if how == "budget":
        time.sleep(max(0, workers.until - time.monotonic()))
    yield from run_jobs(list(rest), workers=workers, **options)


def fill_up(connect):
    """Return a function that connects to a file whose disk is full after two Attempts."""

    def connected(*args, **options):
        connection = connect(*args, **options)
        connection.set_authorizer(None)
        return connection

    return connected


if __name__ == "__main__":
    marker, how = Path(sys.argv[1]), sys.argv[2]
    sweeping.run_jobs = lambda jobs, **options: held(marker, how, jobs, **options)
    if how == "full":
        sqlite3.connect = fill_up(sqlite3.connect)
    main(sys.argv[3:], prog_name="optrove")
