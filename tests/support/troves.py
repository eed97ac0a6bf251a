"""Make recordings of every kind for troves, and dump troves; needs no framework."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from optrove.capture.recorder import Recorder
from optrove.journal.format import LINES
from optrove.journal.reader import JournalReader
from optrove.journal.writer import Journal
from optrove.model.records import (
    Attempt,
    DeviceKind,
    DeviceParameters,
    Environment,
    Measurement,
    Outcome,
    Phase,
    Run,
    RunKind,
    Scope,
    TestOutcome,
    TestResult,
)
from optrove.model.trove import Imported, ImportedCase, Machine
from optrove.model.values import Int
from optrove.serializer.records import record_to_builtins
from optrove.trove.reader import open_reader
from tracing import fake_op, perform

ENVIRONMENT = Environment(
    "0.1", "3.12", "linux", board="n300", device=DeviceParameters(mesh_shape=(1, 2))
)
STARTED = "2026-01-02T03:04:05.000000Z"
FINISHED = "2026-01-02T03:05:00.000000Z"


def run_of(run_id="run", **changes):
    """Return a traced Run."""
    facts = {"id": run_id, "kind": RunKind.TRACE, "source": f"{run_id}.py", "started_at": STARTED}
    return Run(**{**facts, "environment": ENVIRONMENT, **changes})


def imported(run_id, *cases, machine=None, **changes):
    """Return an import of cases, or of pairs of a case and the number of its calls."""
    pairs = [pair if isinstance(pair, tuple) else (pair, 1) for pair in cases]
    found = tuple(ImportedCase(case, count, "$") for case, count in pairs)
    run = run_of(run_id, kind=RunKind.IMPORT, **changes)
    return Imported(run, machine or Machine("Wormhole", "n300", mesh_device_shape=(1, 2)), found)


def attempt_of(case_id, run_id="run", outcome=Outcome.PASSED, **changes):
    """Return an Attempt with two measurements, one of which is not a number."""
    measured = (Measurement("pcc", 0.999, 0.99, passed=True), Measurement("ulp", float("nan")))
    facts = {"run_id": run_id, "case_id": case_id, "outcome": outcome, "started_at": STARTED}
    facts |= {"device_kind": DeviceKind.MOCK, "measurements": measured, "outputs": (Int(1),)}
    return Attempt(**{**facts, **changes})


class Program:
    """A program that is traced into a journal by hand, one call after another."""

    def __init__(self, directory, run=None, process=0):
        self.run = run or run_of()
        self._journal = Journal(directory, process, {"run": record_to_builtins(self.run)})
        self._recorder = Recorder(self._journal)
        self.lines = self._journal.path.with_name(self._journal.path.name + LINES)

    def call(self, op, *arguments, result=None):
        """Make a call; a result that is an exception is raised by it."""

        def operation(*_):
            if isinstance(result, Exception):
                raise result
            return result() if callable(result) else result

        try:
            form = fake_op(op, composite=callable(result))
            perform(self._recorder, form, operation, *arguments)
        except ArithmeticError:
            return

    def within(self, test_id, phase=Phase.CALL, **facts):
        """Make the calls that follow within a test."""
        self._recorder.set_scope(Scope(test_id, phase, **facts))

    def test(self, test_id, outcome=TestOutcome.PASSED, **facts):
        """Tell the result of a test."""
        result = TestResult(self.run.id, test_id, outcome, **facts)
        self._journal.write({"test": record_to_builtins(result)})

    def end(self):
        """End in order."""
        finished = replace(self.run, finished_at=FINISHED, exit_code=0)
        self._journal.write({"run": record_to_builtins(finished)})
        self._journal.write({"end": {"finished_at": FINISHED, "exit_code": 0, "faults": {}}})
        return self.stop()

    def stop(self):
        """Stop without having ended, as a process does that is killed."""
        self._journal.close()
        return self.content

    @property
    def content(self):
        """The journal as it is now."""
        return JournalReader(self.lines)


_DUMPED = {
    "environments": "SELECT environment_id, device_kind, board, content FROM environments",
    "runs": """
        SELECT r.run_id, r.kind, r.source, r.model, r.started_at, r.finished_at, r.machine,
            r.content, e.environment_id
        FROM runs r JOIN environments e ON e.key = r.environment_key""",
    "recordings": """
        SELECT r.run_id, g.process, g.complete, g.calls, g.size, g.digest, g.dictionary
        FROM recordings g JOIN runs r ON r.key = g.run_key""",
    "call_blocks": """
        SELECT r.run_id, g.process, b.first, b.calls, b.content
        FROM call_blocks b JOIN recordings g ON g.key = b.recording_key
        JOIN runs r ON r.key = g.run_key""",
    "tests": """
        SELECT r.run_id, g.process, t.place, t.test_id, t.outcome, t.content
        FROM tests t JOIN recordings g ON g.key = t.recording_key
        JOIN runs r ON r.key = g.run_key""",
    "cases": """
        SELECT c.case_id, c.semantic_id, c.family_id, c.op, c.replayable, c.calls,
            c.outermost_calls, t.content
        FROM cases c JOIN contents t ON t.case_key = c.key""",
    "case_tensors": """
        SELECT c.case_id, t.place, t.argument, t.shape, t.dtype, t.layout, t.memory, t.mesh
        FROM case_tensors t JOIN cases c ON c.key = t.case_key""",
    "scopes": "SELECT scope_id, test_id, phase, module, mode, device FROM scopes",
    "endings": "SELECT ending_id, raised, content FROM endings",
    "executions": """
        SELECT r.run_id, g.process, x.place, c.case_id, s.scope_id, d.ending_id, x.outcome,
            x.outermost, x.calls, x.total_ns, x.shortest_ns, x.longest_ns
        FROM executions x JOIN recordings g ON g.key = x.recording_key
        JOIN runs r ON r.key = g.run_key JOIN cases c ON c.key = x.case_key
        LEFT JOIN scopes s ON s.key = x.scope_key LEFT JOIN endings d ON d.key = x.ending_key""",
    "usage": """
        SELECT r.run_id, c.case_id, u.calls, u.outermost_calls
        FROM usage u JOIN runs r ON r.key = u.run_key JOIN cases c ON c.key = u.case_key""",
    "op_usage": """
        SELECT r.run_id, u.op, u.cases, u.outermost_cases, u.calls, u.outermost_calls
        FROM op_usage u JOIN runs r ON r.key = u.run_key""",
    "attempts": """
        SELECT a.attempt_id, r.run_id, c.case_id, a.outcome, a.device_kind, a.board, a.seed,
            a.detail, a.notes, a.started_at, a.duration_ns, a.replayed_case_id, a.content
        FROM attempts a JOIN runs r ON r.key = a.run_key JOIN cases c ON c.key = a.case_key""",
    "config_calls": """
        SELECT r.run_id, g.process, f.place, f.path, c.case_id, f.calls
        FROM config_calls f JOIN recordings g ON g.key = f.recording_key
        JOIN runs r ON r.key = g.run_key JOIN cases c ON c.key = f.case_key""",
    "sweeps": """
        SELECT r.run_id, s.plan_id, s.content FROM sweeps s JOIN runs r ON r.key = s.run_key""",
    "planned": """
        SELECT r.run_id, p.place, c.case_id, p.suite, p.device_kind, p.board
        FROM planned p JOIN runs r ON r.key = p.run_key JOIN cases c ON c.key = p.case_key""",
    "sessions": """
        SELECT r.run_id, s.begun_at, s.process, s.alive_at, s.ending
        FROM sessions s JOIN runs r ON r.key = s.run_key""",
    "measurements": """
        SELECT a.attempt_id, m.place, m.name, m.value, m.threshold, m.passed, m.output
        FROM measurements m JOIN attempts a ON a.key = m.attempt_key""",
}


_DERIVED = {
    "usage": """
        SELECT r.run_id, c.case_id, u.calls, u.outermost_calls, u.timed_calls, u.total_ns
        FROM usage u JOIN runs r ON r.key = u.run_key JOIN cases c ON c.key = u.case_key""",
    "op_usage": """
        SELECT r.run_id, u.op, u.cases, u.outermost_cases, u.calls, u.outermost_calls,
            u.timed_calls, u.total_ns
        FROM op_usage u JOIN runs r ON r.key = u.run_key""",
    "cases": """
        SELECT c.case_id, c.calls, c.outermost_calls, c.last_outcome, t.members, o.members
        FROM cases c LEFT JOIN tensor_sets t ON t.key = c.tensor_set_key
        LEFT JOIN origin_sets o ON o.key = c.origin_set_key""",
    "tensor_sets": "SELECT members FROM tensor_sets",
    "origin_sets": "SELECT members FROM origin_sets",
    "origins": "SELECT model, board FROM origins",
    "last_attempts": """
        SELECT c.case_id, l.board, l.device_kind, l.op, a.attempt_id, l.outcome
        FROM last_attempts l JOIN cases c ON c.key = l.case_key
        JOIN attempts a ON a.key = l.attempt_key""",
    "op_attempts": """
        SELECT r.run_id, o.op, o.outcome, o.attempts, o.board, o.timed, o.total_ns, o.outputs,
            CAST(round(1000000 * o.total_pcc) AS BIGINT), o.least_pcc, o.most_pcc
        FROM op_attempts o JOIN runs r ON r.key = o.run_key""",
    "results": """
        SELECT r.run_id, c.case_id, a.attempt_id, v.verdict_id, x.took_ns, x.outputs, x.pcc
        FROM results x JOIN runs r ON r.key = x.run_key JOIN cases c ON c.key = x.case_key
        JOIN attempts a ON a.key = x.attempt_key JOIN verdicts v ON v.key = x.verdict_key""",
}


def derived_of(place):
    """Return the derived rows of the trove at a place, by ids that mean the same in every trove."""
    with open_reader(place) as reader, reader.connection.snapshot():
        labels = {
            key: f"{model} on {board}"
            for key, model, board in reader.connection.fetch(
                "SELECT key, model, board FROM origins"
            )
        }
        found = {}
        for table, sql in _DERIVED.items():
            rows = [list(row) for row in reader.connection.rows(sql, {})]
            ((count,),) = reader.connection.rows(f"SELECT count(*) FROM {table}", {})  # noqa: S608 - one of ours
            assert len(rows) == count, table
            if table in ("cases", "origin_sets"):
                for row in rows:
                    row[-1] = row[-1] and sorted(labels[key] for key in json.loads(row[-1]))
            found[table] = sorted(rows, key=repr)
        return found


def content(reader):
    """Return all that a trove holds, by ids that mean the same in every trove."""
    found = {}
    with reader.connection.snapshot():
        for table, sql in _DUMPED.items():
            rows = [tuple(map(_plain, row)) for row in reader.connection.rows(sql, {})]
            ((count,),) = reader.connection.rows(f"SELECT count(*) FROM {table}", {})  # noqa: S608 - one of ours
            # What refers to nothing would be missing from the answer.
            assert len(rows) == count, table
            found[table] = sorted(rows, key=repr)
    return found


def content_of(place):
    """Return all that the trove at a place holds."""
    with open_reader(place) as reader:
        return content(reader)


def _plain(value):
    if isinstance(value, bytes | memoryview):
        return hashlib.sha256(value).hexdigest()
    return int(value) if isinstance(value, bool) else value
