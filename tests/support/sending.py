"""Kill what sends one trove to another at random moments, and have it go on each time.

``python sending.py SOURCE TARGET COUNT SEED`` prints as JSON how many senders were killed, and how
many runs were there after each; at last it lets one end.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import time

from optrove.errors import NoTrove
from optrove.trove.merging import TroveParts
from optrove.trove.place import place_of
from optrove.trove.reader import open_reader
from optrove.trove.sharing import send
from optrove.trove.trove import open_trove

SMALL = 2_000
"""So little at once that there are many transactions to be killed in."""
LONGEST_SECONDS = 0.03


def send_all(source, target, done=lambda: None):
    """Send what is lacking, in small transactions, and tell of each when it is done."""
    with (
        open_reader(place_of(source)) as reader,
        open_trove(place_of(target), create=True) as trove,
    ):
        parts = TroveParts(reader.connection)
        with parts.snapshot():
            for _ in send(trove, parts, trove.missing_parts(parts), SMALL):
                done()


def killed(source, target, transactions, seconds):
    """Kill a child soon after so many transactions; tell whether it had not ended by then.

    The child waits after one more, so that it does not end before it is killed.
    """
    receiver, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        left = itertools.count(transactions, -1)

        def done():
            os.write(tell, b".")
            if next(left) == 0:
                signal.pause()

        send_all(source, target, done)
        os._exit(0)
    os.close(tell)
    with os.fdopen(receiver, "rb", buffering=0) as heard:
        while transactions and heard.read(1):
            transactions -= 1
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def arrived(target):
    """Return how many runs are there."""
    try:
        with open_reader(place_of(target)) as reader:
            return len(reader.runs())
    except NoTrove:
        return 0


def main(source, target, count, seed):
    """Kill as many senders as are asked for, and let the last one end."""
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    deaths, runs = 0, []
    for _ in range(count):
        moment = LONGEST_SECONDS * chance.random()
        deaths += killed(source, target, chance.randrange(6), moment)
        runs.append(arrived(target))
    send_all(source, target)
    print(json.dumps({"killed": deaths, "runs": runs}))  # noqa: T201 - the answer


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))
