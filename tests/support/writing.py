"""Processes that write to a trove, for tests that let many of them loose or kill them."""

from __future__ import annotations

import sys

from optrove.store.place import place_of
from optrove.store.trove import open_trove
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


def main(place, process, turns):
    """Add one import after another, and tell of each when it is there."""
    for number in range(int(turns)):
        with open_trove(place_of(place), create=True) as trove:
            trove.add_imported(part_of(process, number))
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
