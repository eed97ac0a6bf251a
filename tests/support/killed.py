"""Kill forked children while they record, and report which of their calls had returned.

``python killed.py DIRECTORY HOW COUNT SEED`` prints one JSON list ``[directory, returned, status]``
per child. Each child stores after every call, in memory that outlives it, how many have returned.
HOW is ``sudden`` (killed at a random moment after a random number of calls), ``abort`` (by itself,
inside a call) or ``hang`` (killed while a call does not end).
"""

from __future__ import annotations

import json
import mmap
import os
import random
import resource
import signal
import sys
import time
from functools import partial
from pathlib import Path

from tracing import fake_op, perform, start_recorder

PLAIN, OUTER, INNER = fake_op("fake.plain"), fake_op("fake.outer"), fake_op("fake.inner")
OUTER.composite = True
LONGEST_SECONDS = 0.003
MOST_CALLS = 300
ENDING_AT = 50


def sequence():
    """Yield without end the calls that a child makes: what to call, and with what."""
    number = 0
    while True:
        yield "fake.plain", number
        yield "fake.plain", number % 5
        yield "fake.fails", number % 7
        yield "fake.outer", number % 11
        number += 1


def expected(op, argument):
    """Return the records of one call: op, argument, outcome, outputs or error, offset of parent."""
    if op == "fake.plain":
        return [(op, argument, "returned", argument + 1, None)]
    if op == "fake.fails":
        return [(op, argument, "raised", f"ValueError: failed with {argument}", None)]
    inner = ("fake.inner", argument, "returned", argument + 1, 0)
    return [(op, argument, "returned", argument, None), inner, inner]


FAILS = fake_op("fake.fails")


def make_call(recorder, op, argument):
    """Make one call of the sequence."""

    def plus_one(a):
        return a + 1

    def fails(a):
        raise ValueError(f"failed with {a}")

    def outer(a):
        perform(recorder, INNER, plus_one, a)
        perform(recorder, INNER, plus_one, a)
        return a

    if op == "fake.plain":
        perform(recorder, PLAIN, plus_one, argument)
    elif op == "fake.outer":
        perform(recorder, OUTER, outer, argument)
    else:
        try:
            perform(recorder, FAILS, fails, argument)
        except ValueError:
            return


def child(directory, returned, how):
    """Make calls until the end comes."""
    recorder, _ = start_recorder(directory)
    for number, (op, argument) in enumerate(sequence(), start=1):
        make_call(recorder, op, argument)
        returned[:8] = number.to_bytes(8, sys.byteorder)
        if how != "sudden" and number == ENDING_AT:
            last = os.abort if how == "abort" else partial(tell_and_wait, returned)
            perform(recorder, fake_op("fake.last"), partial(instead, last), "the last", [1, 2.5])


def instead(function, *_):
    """Call a function without arguments, whatever is given."""
    function()


def tell_and_wait(returned):
    """Do not end."""
    returned[8:9] = b"1"
    while True:
        signal.pause()


def calls_in(returned):
    """Return how many calls a child has reported."""
    return int.from_bytes(returned[:8], sys.byteorder)


def end(directory, how, calls, seconds):
    """Let one child run and end, and return how many of its calls had returned, and its status."""
    returned = mmap.mmap(-1, 16)
    process = os.fork()
    if process == 0:
        child(directory, returned, how)
    if how == "sudden":
        while calls_in(returned) < calls:
            time.sleep(0.0001)
        time.sleep(seconds)
        os.kill(process, signal.SIGKILL)
    if how == "hang":
        while returned[8:9] != b"1":
            time.sleep(0.001)
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    return calls_in(returned), os.waitstatus_to_exitcode(status)


def main(place, how, count, seed):
    """End children, and print what became of each."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    chance = random.Random(int(seed))  # noqa: S311 - moments, not secrets
    for number in range(int(count)):
        directory = Path(place) / str(number)
        directory.mkdir()
        # Most of the moments early, where more kinds of things happen.
        calls, seconds = int(MOST_CALLS * chance.random() ** 3), LONGEST_SECONDS * chance.random()
        returned, status = end(directory, how, calls, seconds)
        print(json.dumps([str(directory), returned, status]))  # noqa: T201 - the answer


if __name__ == "__main__":
    main(*sys.argv[1:])
