-- The tables of a trove, version 4, as SQLite reads them. For PostgreSQL, schema.py replaces
-- the type names by an explicit table, and copies the comments into the database.
--
-- A *_key is a number that is valid within one trove only; a *_id is a text that is the same in
-- every trove. Tables and columns that are marked as derived are computed from the others by
-- derived.py, in the transaction that changes these. Text is compared by its bytes.
--
-- To change a table, edit this file, add the script migrations/<version>.sql, and add a golden
-- trove of the new version. Versions:
--
--     1   the first one
--     2   sweeps with their plans; notes of attempts apart from their details; calls by the
--         entries of run configurations
--     3   derived: times of calls, sets of tensors and origins, counts and results of attempts;
--         files of capsules
--     4   plans of all Runs of cases, and the processes that execute them

-- Facts about this database: its format and version, when and by which optrove it was created
CREATE TABLE trove (
    name TEXT NOT NULL,  -- format, version, created_at, optrove_version
    value TEXT NOT NULL,  -- the value of this fact
    PRIMARY KEY (name)
);

-- Where Runs took place: software, board, and how their processes were started
CREATE TABLE environments (
    key INTEGER NOT NULL,  -- number within this trove
    environment_id TEXT NOT NULL,  -- hash of the content
    device_kind TEXT NOT NULL,  -- hw, mock, shadow or host
    board TEXT,  -- name of the board, as optrove boards lists it
    arch TEXT,  -- architecture of its chips
    ttnn_version TEXT,  -- version of ttnn
    torch_version TEXT,  -- version of torch
    git_sha TEXT,  -- commit of the code that ran
    content TEXT NOT NULL,  -- the whole Environment, as canonical JSON
    PRIMARY KEY (key),
    UNIQUE (environment_id)
);

-- Traced, replayed, swept or imported sessions
CREATE TABLE runs (
    key INTEGER NOT NULL,  -- number within this trove
    run_id TEXT NOT NULL,  -- name of the Run in every trove
    kind TEXT NOT NULL,  -- trace, replay, sweep or import
    source TEXT NOT NULL,  -- the program or test that ran: path [HF_MODEL:name]
    model TEXT,  -- the model, where it is known
    environment_key INTEGER NOT NULL,  -- where it took place
    started_at TEXT NOT NULL,  -- when it began, ISO 8601 in UTC
    finished_at TEXT,  -- when it ended; NULL: interrupted, or still running
    machine TEXT NOT NULL,  -- machine_info of tt-metal's master files, as canonical JSON
    content TEXT NOT NULL,  -- the whole Run except its environment, as canonical JSON
    PRIMARY KEY (key),
    UNIQUE (run_id),
    FOREIGN KEY (environment_key) REFERENCES environments (key)
);
CREATE INDEX ix_runs_environment ON runs (environment_key);
CREATE INDEX ix_runs_started ON runs (started_at);

-- Parts of Runs that arrive, are replaced and are removed as a whole
CREATE TABLE recordings (
    key INTEGER NOT NULL,  -- number within this trove
    run_key INTEGER NOT NULL,  -- the Run that it is a part of
    process INTEGER NOT NULL,  -- number of the process among those of the Run
    complete BOOLEAN NOT NULL,  -- whether the process and all of its calls ended normally
    calls INTEGER NOT NULL,  -- number of calls that began
    size INTEGER NOT NULL,  -- bytes of the journal's lines; zero for imports
    digest TEXT NOT NULL,  -- hash of the whole journal or import
    dictionary BLOB,  -- meaning of the numbers in the blocks of calls
    PRIMARY KEY (key),
    UNIQUE (run_key, process),
    FOREIGN KEY (run_key) REFERENCES runs (key)
);

-- Every call in its order, in packed blocks
CREATE TABLE call_blocks (
    recording_key INTEGER NOT NULL,  -- the Recording that it is a part of
    first INTEGER NOT NULL,  -- op_index of its first call
    calls INTEGER NOT NULL,  -- number of calls in it
    content BLOB NOT NULL,  -- the calls, packed
    PRIMARY KEY (recording_key, first),
    FOREIGN KEY (recording_key) REFERENCES recordings (key) ON DELETE CASCADE
);

-- Results of tests
CREATE TABLE tests (
    recording_key INTEGER NOT NULL,  -- the Recording that holds it
    place INTEGER NOT NULL,  -- number among the results of the Recording
    test_id TEXT NOT NULL,  -- pytest's node id
    outcome TEXT NOT NULL,  -- passed, failed, skipped, ...
    content TEXT NOT NULL,  -- the whole TestResult, as canonical JSON
    PRIMARY KEY (recording_key, place),
    FOREIGN KEY (recording_key) REFERENCES recordings (key) ON DELETE CASCADE
) WITHOUT ROWID;

-- Operations with their arguments, each once
CREATE TABLE cases (
    key INTEGER NOT NULL,  -- number within this trove
    case_id TEXT NOT NULL,  -- placement hash
    semantic_id TEXT NOT NULL,  -- semantic hash: the computation, wherever it is placed
    family_id TEXT NOT NULL,  -- equal for Cases that differ in scalar arguments only
    op TEXT NOT NULL,  -- public name of the operation
    replayable BOOLEAN NOT NULL,  -- whether the recording holds everything that a replay needs
    calls INTEGER NOT NULL,  -- derived: calls of all Runs, at any depth
    outermost_calls INTEGER NOT NULL,  -- derived: calls of all Runs that no other call made
    tensor_set_key INTEGER,  -- derived: the kinds of tensors among its arguments; NULL: no tensor
    origin_set_key INTEGER,  -- derived: the origins that call it outermost; NULL: no origin
    last_outcome TEXT,  -- derived: outcome of the Attempt that was added last; NULL: no Attempt
    PRIMARY KEY (key),
    UNIQUE (case_id)
);
CREATE INDEX ix_cases_groups ON cases (op, tensor_set_key, origin_set_key, last_outcome,
    outermost_calls, calls, replayable);
CREATE INDEX ix_cases_order ON cases (op, outermost_calls DESC, case_id);
CREATE INDEX ix_cases_families ON cases (op, family_id, outermost_calls, case_id);

-- Derived: the different sets of kinds of tensors that Cases have as arguments
CREATE TABLE tensor_sets (
    key INTEGER NOT NULL,  -- number within this trove
    tensor_set_id TEXT NOT NULL,  -- hash of the members
    members TEXT NOT NULL,  -- JSON: a sorted list of [dtype, layout, memory, mesh]
    PRIMARY KEY (key),
    UNIQUE (tensor_set_id)
);

-- Derived: the models, each with a board, whose Runs call Cases
CREATE TABLE origins (
    key INTEGER NOT NULL,  -- number within this trove
    origin_id TEXT NOT NULL,  -- hash of the other columns
    model TEXT NOT NULL,  -- the model, or else the source of the Runs
    board TEXT NOT NULL,  -- name of the board, or none
    PRIMARY KEY (key),
    UNIQUE (origin_id)
);

-- Derived: the different sets of origins that call Cases
CREATE TABLE origin_sets (
    key INTEGER NOT NULL,  -- number within this trove
    origin_set_id TEXT NOT NULL,  -- hash of the members
    members TEXT NOT NULL,  -- JSON: a sorted list of keys of origins
    PRIMARY KEY (key),
    UNIQUE (origin_set_id)
);

-- The Cases themselves, apart from the columns that they are listed and searched by
CREATE TABLE contents (
    case_key INTEGER NOT NULL,  -- the Case
    content TEXT NOT NULL,  -- canonical JSON from which case_id is made
    PRIMARY KEY (case_key),
    FOREIGN KEY (case_key) REFERENCES cases (key) ON DELETE CASCADE
);

-- Search columns of Cases: each tensor among their arguments
CREATE TABLE case_tensors (
    case_key INTEGER NOT NULL,  -- the Case that it is an argument of
    place INTEGER NOT NULL,  -- number in the order of the arguments
    argument TEXT NOT NULL,  -- name of the parameter that holds it, at any depth
    shape TEXT NOT NULL,  -- 1x1x32x64
    dtype TEXT NOT NULL,  -- without the framework: bfloat8_b
    layout TEXT NOT NULL,  -- TILE, ROW_MAJOR, ...
    memory TEXT NOT NULL,  -- L1_HEIGHT_SHARDED, DRAM_INTERLEAVED, HOST, a torch device, ...
    mesh TEXT,  -- shape of the mesh that it is distributed over: 2x4
    PRIMARY KEY (case_key, place),
    FOREIGN KEY (case_key) REFERENCES cases (key) ON DELETE CASCADE
) WITHOUT ROWID;

-- The test, phase, module and mode in which calls were made
CREATE TABLE scopes (
    key INTEGER NOT NULL,  -- number within this trove
    scope_id TEXT NOT NULL,  -- hash of the other columns
    test_id TEXT,  -- pytest's node id
    phase TEXT,  -- setup, call or teardown
    module TEXT,  -- path of the module of the model
    mode TEXT,  -- prefill or decode
    device TEXT,  -- device parameters that differ from the Run's, as JSON
    PRIMARY KEY (key),
    UNIQUE (scope_id)
);

-- Outputs that calls returned, or errors that they raised, each once
CREATE TABLE endings (
    key INTEGER NOT NULL,  -- number within this trove
    ending_id TEXT NOT NULL,  -- hash of the other columns
    raised BOOLEAN NOT NULL,  -- whether it is an error
    content TEXT NOT NULL,  -- JSON: the list of outputs, or the text of the error
    PRIMARY KEY (key),
    UNIQUE (ending_id)
);

-- Groups of calls that agree in everything except their time and place in the order
CREATE TABLE executions (
    recording_key INTEGER NOT NULL,  -- the Recording that holds them
    place INTEGER NOT NULL,  -- number within the Recording
    case_key INTEGER NOT NULL,  -- the Case that was called
    scope_key INTEGER,  -- the test and module that called it
    ending_key INTEGER,  -- its outputs or error
    outcome TEXT NOT NULL,  -- returned, raised or unfinished
    outermost BOOLEAN NOT NULL,  -- whether no other call made them
    calls INTEGER NOT NULL,  -- number of calls
    total_ns INTEGER,  -- duration of all together; NULL: not known
    shortest_ns INTEGER,  -- duration of the shortest
    longest_ns INTEGER,  -- duration of the longest
    PRIMARY KEY (recording_key, place),
    FOREIGN KEY (recording_key) REFERENCES recordings (key) ON DELETE CASCADE,
    FOREIGN KEY (case_key) REFERENCES cases (key),
    FOREIGN KEY (scope_key) REFERENCES scopes (key),
    FOREIGN KEY (ending_key) REFERENCES endings (key)
) WITHOUT ROWID;
CREATE INDEX ix_executions_case ON executions (case_key);
CREATE INDEX ix_executions_scope ON executions (scope_key);
CREATE INDEX ix_executions_ending ON executions (ending_key);

-- Calls whose arguments came from an entry of a run configuration
CREATE TABLE config_calls (
    recording_key INTEGER NOT NULL,  -- the Recording that holds them
    place INTEGER NOT NULL,  -- number within the Recording
    path TEXT NOT NULL,  -- entry of the run configuration: model.layers.3.mlp.w1
    case_key INTEGER NOT NULL,  -- the Case that was called with it
    calls INTEGER NOT NULL,  -- number of calls
    PRIMARY KEY (recording_key, place),
    FOREIGN KEY (recording_key) REFERENCES recordings (key) ON DELETE CASCADE,
    FOREIGN KEY (case_key) REFERENCES cases (key)
) WITHOUT ROWID;
CREATE INDEX ix_config_calls_case ON config_calls (case_key);

-- Derived: how often each Run called each Case
CREATE TABLE usage (
    run_key INTEGER NOT NULL,  -- the Run
    case_key INTEGER NOT NULL,  -- the Case
    calls INTEGER NOT NULL,  -- calls at any depth
    outermost_calls INTEGER NOT NULL,  -- calls that no other call made
    timed_calls INTEGER NOT NULL,  -- number of these with a known duration
    total_ns INTEGER NOT NULL,  -- duration of the timed calls together
    PRIMARY KEY (run_key, case_key),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE,
    FOREIGN KEY (case_key) REFERENCES cases (key)
) WITHOUT ROWID;
CREATE INDEX ix_usage_case ON usage (case_key);

-- Derived: how often each Run called each operation
CREATE TABLE op_usage (
    run_key INTEGER NOT NULL,  -- the Run
    op TEXT NOT NULL,  -- public name of the operation
    cases INTEGER NOT NULL,  -- number of different Cases
    outermost_cases INTEGER NOT NULL,  -- number of these that were called by no other call
    calls INTEGER NOT NULL,  -- calls at any depth
    outermost_calls INTEGER NOT NULL,  -- calls that no other call made
    timed_calls INTEGER NOT NULL,  -- number of these with a known duration
    total_ns INTEGER NOT NULL,  -- duration of the timed calls together
    PRIMARY KEY (run_key, op),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX ix_op_usage_op ON op_usage (op);

-- Executions of Cases by replays and sweeps, with their results
CREATE TABLE attempts (
    key INTEGER NOT NULL,  -- number within this trove
    attempt_id TEXT NOT NULL,  -- hash of the content
    run_key INTEGER NOT NULL,  -- the Run that made it
    case_key INTEGER NOT NULL,  -- the Case that was executed
    outcome TEXT NOT NULL,  -- passed, numerics, wrong_spec, rejected, ..., not_run
    device_kind TEXT NOT NULL,  -- hw, mock, shadow or host
    board TEXT,  -- name of the board
    seed TEXT NOT NULL,  -- seed of the inputs, an integer of any size
    detail TEXT,  -- message of the operation or the machine
    notes TEXT,  -- remarks of the replay itself, one per line
    started_at TEXT,  -- when it began, ISO 8601 in UTC
    duration_ns INTEGER,  -- duration
    replayed_case_id TEXT,  -- hash of the call as it was traced during the replay
    content TEXT NOT NULL,  -- the whole Attempt with its outputs, as canonical JSON
    PRIMARY KEY (key),
    UNIQUE (attempt_id),
    FOREIGN KEY (run_key) REFERENCES runs (key),
    FOREIGN KEY (case_key) REFERENCES cases (key)
);
CREATE INDEX ix_attempts_run ON attempts (run_key, outcome);
CREATE INDEX ix_attempts_case ON attempts (case_key, board, outcome);

-- Requests of Runs with a plan; in such a Run each Case has at most one Attempt
CREATE TABLE sweeps (
    run_key INTEGER NOT NULL,  -- the Run
    plan_id TEXT NOT NULL,  -- hash of the plan: equal Cases on equal boards in equal order
    content TEXT NOT NULL,  -- the request, and the cases that were not planned, as canonical JSON
    PRIMARY KEY (run_key),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE
);

-- The plans of Runs: the Cases that each executed, or has still to execute
CREATE TABLE planned (
    run_key INTEGER NOT NULL,  -- the Run
    place INTEGER NOT NULL,  -- number in the order of execution
    case_key INTEGER NOT NULL,  -- the Case to execute
    suite TEXT,  -- name of its suite, where it is a vector of a sweep module
    device_kind TEXT NOT NULL,  -- kind of device to execute it on: hw, mock, shadow or host
    board TEXT,  -- name of that board
    PRIMARY KEY (run_key, place),
    UNIQUE (run_key, case_key),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE,
    FOREIGN KEY (case_key) REFERENCES cases (key)
) WITHOUT ROWID;
CREATE INDEX ix_planned_case ON planned (case_key);

-- The processes that executed the plans of Runs, one after another
CREATE TABLE sessions (
    run_key INTEGER NOT NULL,  -- the Run
    begun_at TEXT NOT NULL,  -- when it began with the Run, ISO 8601 in UTC
    process TEXT NOT NULL,  -- boot of the machine, namespace, number and start of the process
    alive_at TEXT NOT NULL,  -- its last sign of life, ISO 8601 in UTC
    ending TEXT,  -- complete, interrupted, ...; NULL: still running, or killed
    PRIMARY KEY (run_key, begun_at, process),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE
) WITHOUT ROWID;

-- Measurements of Attempts
CREATE TABLE measurements (
    attempt_key INTEGER NOT NULL,  -- the Attempt
    place INTEGER NOT NULL,  -- number among the measurements of the Attempt
    name TEXT NOT NULL,  -- pcc, max_abs_error, ...
    value FLOAT,  -- the number; NULL where it is not a number
    threshold FLOAT,  -- the limit that it was compared with
    passed BOOLEAN,  -- whether it met the limit
    output INTEGER,  -- index of the output that it belongs to
    PRIMARY KEY (attempt_key, place),
    FOREIGN KEY (attempt_key) REFERENCES attempts (key) ON DELETE CASCADE
) WITHOUT ROWID;

-- Files of capsules, the real tensors of chosen calls of a trove in PostgreSQL
CREATE TABLE capsule_files (
    name TEXT NOT NULL,  -- <run id>.<process>.jsonl, or the hash of a tensor with .safetensors
    content BLOB NOT NULL,  -- content of the file
    PRIMARY KEY (name)
);

-- Derived: the last Attempt at each Case on each kind of board
CREATE TABLE last_attempts (
    case_key INTEGER NOT NULL,  -- the Case
    board TEXT NOT NULL,  -- name of the board, or none
    device_kind TEXT NOT NULL,  -- hw, mock, shadow or host
    op TEXT NOT NULL,  -- public name of the operation of the Case
    attempt_key INTEGER NOT NULL,  -- the Attempt that was added last
    outcome TEXT NOT NULL,  -- its outcome
    PRIMARY KEY (case_key, board, device_kind),
    FOREIGN KEY (case_key) REFERENCES cases (key) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX ix_last_attempts_op ON last_attempts (op, board, device_kind, outcome);

-- Derived: the Attempts of each Run at each operation, counted by outcome
CREATE TABLE op_attempts (
    run_key INTEGER NOT NULL,  -- the Run
    op TEXT NOT NULL,  -- public name of the operation
    outcome TEXT NOT NULL,  -- the outcome
    attempts INTEGER NOT NULL,  -- number of Attempts
    board TEXT,  -- name of their board; of several, the first in alphabetical order
    timed INTEGER NOT NULL,  -- number of Attempts with a known duration
    total_ns INTEGER NOT NULL,  -- duration of these together
    outputs INTEGER NOT NULL,  -- number of outputs with a PCC
    total_pcc FLOAT NOT NULL,  -- sum of the PCC of these
    least_pcc FLOAT,  -- the lowest PCC
    most_pcc FLOAT,  -- the highest PCC
    PRIMARY KEY (run_key, op, outcome),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX ix_op_attempts_op ON op_attempts (op);

-- Derived: everything that two Runs are compared by, except numbers, each once
CREATE TABLE verdicts (
    key INTEGER NOT NULL,  -- number within this trove
    verdict_id TEXT NOT NULL,  -- hash of the other columns
    outcome TEXT NOT NULL,  -- outcome of the Attempt
    device_kind TEXT NOT NULL,  -- hw, mock, shadow or host
    cause TEXT,  -- cause of a failure, without its numbers
    suite TEXT,  -- name of the suite in the plan of a sweep
    outputs TEXT,  -- the outputs of a passed Attempt, as canonical JSON
    PRIMARY KEY (key),
    UNIQUE (verdict_id)
);

-- Derived: the last Attempt of each Run at each Case
CREATE TABLE results (
    run_key INTEGER NOT NULL,  -- the Run
    case_key INTEGER NOT NULL,  -- the Case
    attempt_key INTEGER NOT NULL,  -- the Attempt
    verdict_key INTEGER NOT NULL,  -- its verdict
    took_ns INTEGER,  -- the measured duration, or else that of the whole Attempt
    outputs INTEGER NOT NULL,  -- number of outputs whose PCC was measured
    pcc FLOAT,  -- the lowest PCC; NULL: not measured, or not a number
    PRIMARY KEY (run_key, case_key),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE
) WITHOUT ROWID;
