"""A traced run of two processes, for tests of what is done with troves; needs no framework."""

from __future__ import annotations

from optrove.model.records import TestOutcome
from optrove.trove.trove import open_trove
from troves import Program, run_of

TRACED = "traced"


def add_traced(place, directory, calls=5):
    """A run of two processes, one of which has a failing test."""
    with open_trove(place, create=True) as trove:
        for process in range(2):
            run = run_of(TRACED, model="small", source="tests/test_x.py")
            program = Program(directory / str(process), run, process)
            program.within("tests/test_x.py::test_a", device=None)
            for number in range(calls):
                program.call("fake.add", number, result=number)
            program.call("fake.div", 1, 0, result=ZeroDivisionError("by zero"))
            program.test("tests/test_x.py::test_a", TestOutcome.FAILED)
            trove.add_journal(program.end())
