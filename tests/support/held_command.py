"""Run a command of optrove that ends early: ``held_command.py MARKER HOW COMMAND...``.

After two cases it writes its process id to the file MARKER. Then it waits to be ended (``wait``),
or goes on: when its budget is over (``budget``), or with a disk that is full (``full``), as SQLite
sees it. The command, its engine, its workers and its trove are the real ones.
"""

import os
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

from optrove.cli.main import main
from optrove.replay.runner import run_jobs
from optrove.sweep import sweeping
from optrove.trove.trove import open_trove

DONE = 2
HOURS = 36_000


class Held:
    """An engine that stops between two cases, and the trove that its results go to."""

    def __init__(self, marker, how):
        self.marker = marker
        self.how = how
        self.driver = None

    def open_trove(self, place, *, create):
        """Open the trove as the command does, and remember its connection."""
        trove = open_trove(place, create=create)
        self.driver = trove.connection.driver
        return trove

    def run_jobs(self, jobs, *, workers, **options):
        """Execute jobs, and stop after the first ones."""
        rest = iter(jobs)
        unlimited = replace(workers, until=None)
        yield from run_jobs(list(islice(rest, DONE)), workers=unlimited, **options)
        self.marker.write_text(str(os.getpid()))
        if self.how == "wait":
            time.sleep(HOURS)
        if self.how == "budget":
            time.sleep(max(0, workers.until - time.monotonic()))
        if self.how == "full":
            (pages,) = self.driver.execute("PRAGMA page_count").fetchone()
            self.driver.execute(f"PRAGMA max_page_count = {pages}")
        yield from run_jobs(list(rest), workers=workers, **options)


if __name__ == "__main__":
    held = Held(Path(sys.argv[1]), sys.argv[2])
    sweeping.run_jobs, sweeping.open_trove = held.run_jobs, held.open_trove
    main(sys.argv[3:], prog_name="optrove")
