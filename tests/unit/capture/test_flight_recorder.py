"""What is left of a recording when its process ends suddenly."""

import json
import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

import killed
from optrove.frameworks.installed import loaded_tables
from optrove.serializer.describe import describe
from optrove.serializer.wire import encode
from tracing import readers_in, seen_in, summary_of

KILLS = 200


def end_children(place, how, count):
    """Return the directory, the number of calls that had returned, and the status of each child."""
    done = subprocess.run(
        [sys.executable, killed.__file__, str(place), how, str(count), "20260115"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    reported = [json.loads(line) for line in done.stdout.splitlines()]
    return [(Path(directory), returned, status) for directory, returned, status in reported]


def recorded(directory):
    """Return the calls of the one journal in a directory as ``killed.expected`` gives them."""
    readers = readers_in(directory)
    assert len(readers) <= 1
    for reader in readers:
        for seen in seen_in(reader):
            call = seen.call
            (argument, *more) = [encode(value) for _, value in seen.case.arguments]
            ending = [*map(encode, call.outputs)]
            reported = call.error if seen.outcome == "raised" else next(iter(ending), None)
            yield seen.op, argument, seen.outcome, reported, call.parent, more


def compare(directory, returned):
    """Check that all calls that had returned are there, and at most one more; return how many."""
    found = list(recorded(directory))
    place = top = 0
    for number, made in enumerate(islice(killed.sequence(), returned + 1)):
        for op, argument, outcome, reported, parent in killed.expected(*made):
            if number == returned and place == len(found):
                break
            top = place if parent is None else top
            above = None if parent is None else top
            seen = found[place]
            assert seen[:2] == (op, argument)
            assert seen[4] == above
            unfinished = number == returned and seen[2] == "unfinished"
            assert unfinished or seen[2:4] == (outcome, reported)
            place += 1
    assert place == len(found)
    return place


@pytest.mark.slow
def test_whenever_a_process_is_killed_every_call_that_returned_is_in_the_journal(tmp_path):
    children = end_children(tmp_path, "sudden", KILLS)
    assert [status for *_, status in children] == [-signal.SIGKILL] * KILLS
    counts = []
    for directory, returned, _ in children:
        records = compare(directory, returned)
        summary = summary_of(directory)
        assert summary.accounting.observed == records
        assert summary.unclosed == summary.processes <= 1
        assert len(summary.in_flight) <= 2
        counts.append(returned)
    # The moments were spread: before the first call, and after many.
    assert min(counts) < 50
    assert max(counts) > 100


@pytest.mark.parametrize(("how", "status"), [("abort", -signal.SIGABRT), ("hang", -signal.SIGKILL)])
def test_the_call_in_which_a_process_ended_is_named_with_its_arguments(tmp_path, how, status):
    ((directory, returned, ended),) = end_children(tmp_path, how, 1)
    assert (returned, ended) == (killed.ENDING_AT, status)
    *_, last = recorded(directory)
    assert last[:5] == ("fake.last", "the last", "unfinished", None, None)
    assert last[5] == [encode(describe([1, 2.5], loaded_tables()))]
    summary = summary_of(directory)
    ((flying, case),) = summary.in_flight
    assert case.op == "fake.last"
    assert flying.call_site.file == killed.__file__
    assert [encode(value) for _, value in case.arguments] == ["the last", last[5][0]]
