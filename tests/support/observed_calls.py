"""Finished calls as the recorder hands them to sinks, with defaults for all facts."""

from __future__ import annotations

from dataclasses import replace

from optrove.capture.sinks import Observed, described_call
from optrove.frameworks.installed import loaded_tables
from optrove.model.records import Scope
from optrove.serializer.describe import Describer

STARTED_NS = 1_768_473_976_345_678_912
"""2026-01-15T10:46:16.345678912Z."""


def observed(*arguments, op="fake.add", keywords=None, tables=None, **facts):
    """Return a call that returned None outside of any test, with the given facts."""
    call = {
        "op_index": 0,
        "process": 0,
        "result": None,
        "error": None,
        "case_id": None,
        "number": 0,
        "scope": Scope(),
        "call_site": None,
        "parent": None,
        "depth": 0,
        "started_ns": STARTED_NS,
        "duration_ns": 1_500_000,
        "run_id": "run",
    }
    call |= facts
    session = Describer(tables or loaded_tables())
    described = described_call(session, arguments, keywords or {})
    if not call["error"]:
        described = replace(described, output=session.describe(call["result"]))
    return Observed(
        op=op, arguments=arguments, keywords=keywords or {}, described=described, **call
    )
