"""Finished calls as the recorder hands them to sinks, with as little said as a test needs."""

from __future__ import annotations

from optrove.capture.sinks import DescribedCall, Observed
from optrove.frameworks.installed import loaded_tables
from optrove.serializer.describe import Describer

STARTED_NS = 1_768_473_976_345_678_912
"""2026-01-15T10:46:16.345678912Z."""


def observed(*arguments, op="fake.add", keywords=None, tables=None, **facts):
    """Return a call that returned None, of no test, but for the given facts."""
    told = {
        "op_index": 0,
        "process": 0,
        "result": None,
        "error": None,
        "case": None,
        "test_id": None,
        "phase": None,
        "module": None,
        "mode": None,
        "call_site": None,
        "parent": None,
        "depth": 0,
        "started_ns": STARTED_NS,
        "duration_ns": 1_500_000,
        "run_id": "run",
    }
    told |= facts
    begun = DescribedCall(Describer(tables or loaded_tables()), arguments, keywords or {})
    told["described"] = begun.raised() if told["error"] else begun.returned(told["result"])
    return Observed(op=op, arguments=arguments, keywords=keywords or {}, **told)
