"""The tables of a trove, on SQLite and PostgreSQL alike.

A ``*_key`` is a whole number that means something within one trove only; a ``*_id`` is a text that
is the same in every trove. ``usage``, ``op_usage`` and the counts in ``cases`` are derived from
``executions``, and kept right by whoever changes those. Text is compared by its bytes.

Versions:

    1   the first one
    2   sweeps with their plans; notes of attempts apart from their details; calls by the entries
        of run configurations

A change of a table needs a new version, a step in ``migrations.py``, and a golden trove.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

VERSION: Final = 2

METADATA: Final = MetaData()

_TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")
# What is spelled INTEGER is the number of a row itself in SQLite, and costs nothing.
_NUMBER: Final = BigInteger().with_variant(Integer(), "sqlite")


def _key(comment: str) -> Column[Any]:
    return Column("key", _NUMBER, primary_key=True, autoincrement=False, comment=comment)


def _part_of(target: str, comment: str, *, owned: bool = True) -> Column[Any]:
    """Return a column that is part of the primary key and refers to another table."""
    reference = ForeignKey(f"{target}.key", ondelete="CASCADE" if owned else None)
    name = f"{_SINGULAR[target]}_key"
    return Column(name, _NUMBER, reference, primary_key=True, comment=comment)


def _refers_to(target: str, comment: str, *, nullable: bool = False) -> Column[Any]:
    name = f"{_SINGULAR[target]}_key"
    return Column(name, _NUMBER, ForeignKey(f"{target}.key"), nullable=nullable, comment=comment)


def _text(name: str, comment: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, _TEXT, nullable=nullable, comment=comment)


def _number(name: str, comment: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, _NUMBER, nullable=nullable, comment=comment)


def _flag(name: str, comment: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, Boolean, nullable=nullable, comment=comment)


def _place(comment: str) -> Column[Any]:
    return Column("place", _NUMBER, primary_key=True, autoincrement=False, comment=comment)


_SINGULAR: Final = {
    "attempts": "attempt",
    "cases": "case",
    "endings": "ending",
    "environments": "environment",
    "recordings": "recording",
    "runs": "run",
    "scopes": "scope",
}

TROVE: Final = Table(
    "trove",
    METADATA,
    Column("name", _TEXT, primary_key=True, comment="format, version, created_at, ..."),
    _text("value", "what it is"),
    comment="What this database is: the format and its version, by whom and when it was made",
)

ENVIRONMENTS: Final = Table(
    "environments",
    METADATA,
    _key("number within this trove"),
    Column("environment_id", _TEXT, nullable=False, unique=True, comment="hash of the content"),
    _text("device_kind", "hw, mock, shadow or host"),
    _text("board", "name of the board, as optrove boards lists it", nullable=True),
    _text("arch", "architecture of its chips", nullable=True),
    _text("ttnn_version", "version of ttnn", nullable=True),
    _text("torch_version", "version of torch", nullable=True),
    _text("git_sha", "commit of what was run", nullable=True),
    _text("content", "all of it, as canonical JSON"),
    comment="Where Runs took place: software, board, and how their processes were started",
)

RUNS: Final = Table(
    "runs",
    METADATA,
    _key("number within this trove"),
    Column("run_id", _TEXT, nullable=False, unique=True, comment="name of the Run everywhere"),
    _text("kind", "trace, replay, sweep or import"),
    _text("source", "what was run: path [HF_MODEL:name]"),
    _text("model", "the model, where it is known", nullable=True),
    _refers_to("environments", "where it took place"),
    _text("started_at", "when it began, ISO 8601 in UTC"),
    _text("finished_at", "when it ended; none: interrupted, or going on", nullable=True),
    _text("machine", "machine_info of tt-metal's master files, as canonical JSON"),
    _text("content", "all of the Run but its environment, as canonical JSON"),
    Index("ix_runs_environment", "environment_key"),
    Index("ix_runs_started", "started_at"),
    comment="Traced, replayed, swept or imported sessions",
)

RECORDINGS: Final = Table(
    "recordings",
    METADATA,
    _key("number within this trove"),
    _refers_to("runs", "the Run that it is a part of"),
    _number("process", "number of the process among those of the Run"),
    _flag("complete", "whether the process has ended in order, and all of its calls"),
    _number("calls", "how many calls had begun"),
    _number("size", "bytes of the journal's lines; zero for imports"),
    _text("digest", "hash of the whole journal or import"),
    Column("dictionary", LargeBinary, comment="what the numbers in the blocks of calls mean"),
    UniqueConstraint("run_key", "process"),
    comment="Parts of Runs that arrive, are replaced and are removed as a whole",
)

CALL_BLOCKS: Final = Table(
    "call_blocks",
    METADATA,
    _part_of("recordings", "the Recording that it is a part of"),
    Column(
        *("first", _NUMBER),
        primary_key=True,
        autoincrement=False,
        comment="op_index of its first call",
    ),
    _number("calls", "how many calls it holds"),
    Column("content", LargeBinary, nullable=False, comment="the calls, packed"),
    comment="Every call in its order, in packed stretches",
)

TESTS: Final = Table(
    "tests",
    METADATA,
    _part_of("recordings", "the Recording that tells of it"),
    _place("number among the results of the Recording"),
    _text("test_id", "pytest's node id"),
    _text("outcome", "passed, failed, skipped, ..."),
    _text("content", "all of the TestResult, as canonical JSON"),
    comment="Results of tests",
    sqlite_with_rowid=False,
)

CASES: Final = Table(
    "cases",
    METADATA,
    _key("number within this trove"),
    Column("case_id", _TEXT, nullable=False, unique=True, comment="placement hash"),
    _text("semantic_id", "semantic hash: what is computed, wherever"),
    _text("family_id", "equal for Cases that differ in scalar arguments only"),
    _text("op", "public name of the operation"),
    _flag("replayable", "whether the recording holds all that a replay needs"),
    _number("calls", "derived: calls of all Runs, at any depth"),
    _number("outermost_calls", "derived: calls of all Runs that no other call made"),
    Index("ix_cases_op", "op", "outermost_calls", "calls", "replayable"),
    comment="Operations with their arguments, each once",
)

CONTENTS: Final = Table(
    "contents",
    METADATA,
    _part_of("cases", "the Case"),
    _text("content", "canonical JSON from which case_id is made"),
    comment="The Cases themselves, apart from what they are listed and searched by",
)

CASE_TENSORS: Final = Table(
    "case_tensors",
    METADATA,
    _part_of("cases", "the Case that it is an argument of"),
    _place("number in the order of the arguments"),
    _text("argument", "name of the parameter that holds it, at whatever depth"),
    _text("shape", "1x1x32x64"),
    _text("dtype", "without the framework: bfloat8_b"),
    _text("layout", "TILE, ROW_MAJOR, ..."),
    _text("memory", "L1_HEIGHT_SHARDED, DRAM_INTERLEAVED, HOST, a torch device, ..."),
    _text("mesh", "shape of the mesh that it is spread over: 2x4", nullable=True),
    comment="What Cases can be searched by: each tensor among their arguments",
    sqlite_with_rowid=False,
)

SCOPES: Final = Table(
    "scopes",
    METADATA,
    _key("number within this trove"),
    Column("scope_id", _TEXT, nullable=False, unique=True, comment="hash of all of it"),
    _text("test_id", "pytest's node id", nullable=True),
    _text("phase", "setup, call or teardown", nullable=True),
    _text("module", "path of the module of the model", nullable=True),
    _text("mode", "prefill or decode", nullable=True),
    _text("device", "parameters of the device that differ from the Run's, as JSON", nullable=True),
    comment="Within what calls were made",
)

ENDINGS: Final = Table(
    "endings",
    METADATA,
    _key("number within this trove"),
    Column("ending_id", _TEXT, nullable=False, unique=True, comment="hash of all of it"),
    _flag("raised", "whether it is an error"),
    _text("content", "JSON: the list of outputs, or the text of the error"),
    comment="What calls gave, or with what they failed, each once",
)

EXECUTIONS: Final = Table(
    "executions",
    METADATA,
    _part_of("recordings", "the Recording that tells of them"),
    _place("number within the Recording"),
    _refers_to("cases", "what was called"),
    _refers_to("scopes", "within what", nullable=True),
    _refers_to("endings", "what came of it", nullable=True),
    _text("outcome", "returned, raised or unfinished"),
    _flag("outermost", "whether no other call made them"),
    _number("calls", "how many they are"),
    _number("total_ns", "how long they took together; none: not known", nullable=True),
    _number("shortest_ns", "how long the shortest took", nullable=True),
    _number("longest_ns", "how long the longest took", nullable=True),
    Index("ix_executions_case", "case_key"),
    Index("ix_executions_scope", "scope_key"),
    Index("ix_executions_ending", "ending_key"),
    comment="Calls that agree in all but their time and place in the order",
    sqlite_with_rowid=False,
)

CONFIG_CALLS: Final = Table(
    "config_calls",
    METADATA,
    _part_of("recordings", "the Recording that tells of them"),
    _place("number within the Recording"),
    _text("path", "entry of the run configuration: model.layers.3.mlp.w1"),
    _refers_to("cases", "what was called with it"),
    _number("calls", "how many they are"),
    Index("ix_config_calls_case", "case_key"),
    comment="Calls whose arguments came from an entry of a run configuration",
    sqlite_with_rowid=False,
)

USAGE: Final = Table(
    "usage",
    METADATA,
    _part_of("runs", "the Run"),
    _part_of("cases", "the Case", owned=False),
    _number("calls", "calls at any depth"),
    _number("outermost_calls", "calls that no other call made"),
    Index("ix_usage_case", "case_key"),
    comment="Derived: how often each Run has called each Case",
    sqlite_with_rowid=False,
)

OP_USAGE: Final = Table(
    "op_usage",
    METADATA,
    _part_of("runs", "the Run"),
    Column("op", _TEXT, primary_key=True, comment="public name of the operation"),
    _number("cases", "how many different Cases"),
    _number("outermost_cases", "how many of these were called by no other call"),
    _number("calls", "calls at any depth"),
    _number("outermost_calls", "calls that no other call made"),
    comment="Derived: how often each Run has called each operation",
    sqlite_with_rowid=False,
)

ATTEMPTS: Final = Table(
    "attempts",
    METADATA,
    _key("number within this trove"),
    Column("attempt_id", _TEXT, nullable=False, unique=True, comment="hash of all of it"),
    _refers_to("runs", "the Run that made it"),
    _refers_to("cases", "the Case that was executed"),
    _text("outcome", "passed, numerics, wrong_spec, rejected, ..., not_run"),
    _text("device_kind", "hw, mock, shadow or host"),
    _text("board", "name of the board", nullable=True),
    _text("seed", "seed of the inputs, a whole number of any size"),
    _text("detail", "the operation's or the machine's own words", nullable=True),
    _text("notes", "what the replay itself has to say, one line each", nullable=True),
    _text("started_at", "when it began, ISO 8601 in UTC", nullable=True),
    _number("duration_ns", "how long it took", nullable=True),
    _text("replayed_case_id", "hash of the call as it was traced while it ran", nullable=True),
    _text("content", "all of the Attempt with its outputs, as canonical JSON"),
    Index("ix_attempts_run", "run_key", "outcome"),
    Index("ix_attempts_case", "case_key", "board", "outcome"),
    comment="Executions of Cases by replays and sweeps, and what came of them",
)

SWEEPS: Final = Table(
    "sweeps",
    METADATA,
    _part_of("runs", "the Run that is a sweep"),
    _text("plan_id", "hash of the plan: the same Cases on the same boards in the same order"),
    _text("content", "what was asked for, and what was not planned, as canonical JSON"),
    comment="What sweeps were asked for; a Case has one Attempt at most in the Run of a sweep",
)

PLANNED: Final = Table(
    "planned",
    METADATA,
    _part_of("runs", "the Run that is a sweep"),
    _place("number in the order in which they are executed"),
    _refers_to("cases", "the Case that is to be executed"),
    _text("suite", "name of its suite, where it is a vector of a sweep module", nullable=True),
    _text("device_kind", "what it is executed on: hw, mock, shadow or host"),
    _text("board", "name of that board", nullable=True),
    UniqueConstraint("run_key", "case_key"),
    Index("ix_planned_case", "case_key"),
    comment="The plans of sweeps: what each has executed, or is still to execute",
    sqlite_with_rowid=False,
)

MEASUREMENTS: Final = Table(
    "measurements",
    METADATA,
    _part_of("attempts", "the Attempt"),
    _place("number among those of the Attempt"),
    _text("name", "pcc, max_abs_error, ..."),
    Column("value", Float(53), comment="the number; none where it is not a number"),
    Column("threshold", Float(53), comment="the bound that it was held against"),
    _flag("passed", "whether it kept the bound", nullable=True),
    _number("output", "index of the result that it belongs to", nullable=True),
    comment="What was measured about Attempts",
    sqlite_with_rowid=False,
)
