"""Counts that pages share."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from optrove.web.page_request import CountCache


def test_counts_are_made_once_while_others_wait() -> None:
    counts, made, begun = CountCache(), [], threading.Event()

    def make() -> int:
        made.append(1)
        begun.wait(60)
        return 7

    with ThreadPoolExecutor(3) as threads:
        results = [threads.submit(counts.get, "groups", make) for _ in range(3)]
        begun.set()
        assert [each.result() for each in results] == [7, 7, 7]
    assert made == [1]


def test_counts_that_failed_are_made_again() -> None:
    counts = CountCache()
    with pytest.raises(ZeroDivisionError):
        counts.get("groups", lambda: 1 // 0)
    assert counts.get("groups", lambda: 3) == 3


def test_the_oldest_counts_are_dropped() -> None:
    counts = CountCache()
    for key in range(100):
        counts.get(key, lambda: 0)
    assert counts.get(0, lambda: 1) == 1
    assert counts.get(99, lambda: 1) == 0
