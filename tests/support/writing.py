"""Processes that write to a trove, for tests that let many of them loose or kill them.

``python writing.py together TROVE PROCESSES TURNS`` or ``killed TROVE FIRST COUNT SEED`` prints as
JSON what became of them. They are forked: to import optrove takes longer than to write.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time

from optrove.trove.place import place_of
from optrove.trove.trove import open_trove
from trove_rows import case, tensor
from troves import imported


def shared(number):
    """Return a case that every process adds."""
    return case("ttnn.shared", a=tensor(32, 32), number=number)


def own(process, number):
    """Return a case that one process adds alone."""
    return case("ttnn.own", a=tensor(32, 32), process=process, number=number)


def part_of(process, number):
    """Return the import that a process makes at its turn ``number``."""
    cases = [(shared(each), 1 + each) for each in range(10)]
    return imported(f"run-{process}-{number}", *cases, (own(process, number), 3))


def write(place, process, turns, tell):
    """Add one import after another, and tell of each when it is there."""
    for number in range(turns):
        with open_trove(place_of(place), create=True) as trove:
            trove.add_imported(part_of(process, number))
        os.write(tell, b"%d\n" % number)


def start(place, process, turns):
    """Start a child that writes; return its number, and where it tells of what is there."""
    received, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(received)
        write(place, process, turns, tell)
        os._exit(0)
    os.close(tell)
    return child, os.fdopen(received)


def together(place, processes, turns):
    """Let children write at once; return the status of each, and how many turns it reported."""
    writers = [start(place, process, turns) for process in range(processes)]
    received = []
    for child, heard in writers:
        with heard:
            turns = len(heard.readlines())
        received.append((os.waitpid(child, 0)[1], turns))
    return received


def killed(place, first, count, seed):
    """Kill children while they write, two at a time; return what they reported."""
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    received = []
    for pair in range(first, first + count, 2):
        # Few turns, so that the trove stays small; more than they live for.
        writers = {process: start(place, process, 40) for process in (pair, pair + 1)}
        for process, (child, heard) in writers.items():
            with heard:
                # One of them not before something is there.
                lines = [heard.readline()] if process % 2 else []
                time.sleep(chance.uniform(0, 0.05))
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                lines += heard.readlines()
            received += [(process, int(line)) for line in lines]
    return received


if __name__ == "__main__":
    what = {"together": together, "killed": killed}[sys.argv[1]]
    print(json.dumps(what(sys.argv[2], *map(int, sys.argv[3:]))))  # noqa: T201 - the answer
