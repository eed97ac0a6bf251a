"""Kill a sweep at random moments, and have it go on each time.

``python killed_sweep.py TROVE COUNT SEED`` prints as JSON how many cases had been attempted after
each kill; at last it lets the sweep end.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import sys
import time
from contextlib import closing, suppress

from odd_worker import run_oddly
from optrove.cli.main import main
from optrove.replay import replay
from optrove.sweep import sweeping

LONGEST_SECONDS = 0.3
AT_ONCE = 100
"""So many cases a child attempts quickly; then it dawdles, lest it end before it is killed."""


def run_slower(*arguments, **options):
    """Execute Jobs as ``run_oddly`` does, but only the first ones as quickly."""
    for number, attempt in enumerate(run_oddly(*arguments, **options)):
        if number >= AT_ONCE:
            time.sleep(0.1)
        yield attempt


def sweep(place, run=run_oddly):
    """Go on with the sweep of a trove, in this process."""
    sweeping.run_jobs = run
    replay._SECONDS = 0.02
    with suppress(SystemExit):
        main(["sweep", "--resume", "--jobs", "2", "--store", place])


def attempted(place):
    """Return how many cases have been attempted."""
    with closing(sqlite3.connect(place, timeout=30)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE name = 'attempts'")
        if tables.fetchone() is None:
            return 0
        return connection.execute("SELECT count(*) FROM attempts").fetchone()[0]


def killed(place, seconds):
    """Let a child sweep until something has come of it, and a little longer."""
    before = attempted(place)
    child = os.fork()
    if child == 0:
        sys.stdout = sys.stderr
        sweep(place, run_slower)
        os._exit(0)
    while attempted(place) == before and os.waitpid(child, os.WNOHANG) == (0, 0):
        time.sleep(0.005)
    time.sleep(seconds)
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return attempted(place)


if __name__ == "__main__":
    chance = random.Random(int(sys.argv[3]))  # noqa: S311 - moments, not secrets
    found = [
        killed(sys.argv[1], LONGEST_SECONDS * chance.random() ** 2) for _ in range(int(sys.argv[2]))
    ]
    sweep(sys.argv[1])
    print(json.dumps(found))  # noqa: T201 - the answer
