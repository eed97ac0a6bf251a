-- From version 2 to 3: derived tables and columns, which derived.py fills afterwards. Never edit a
-- released script.

ALTER TABLE cases ADD COLUMN tensor_set_key INTEGER;
ALTER TABLE cases ADD COLUMN origin_set_key INTEGER;
ALTER TABLE cases ADD COLUMN last_outcome TEXT;
DROP INDEX ix_cases_op;
CREATE INDEX ix_cases_groups ON cases (op, tensor_set_key, origin_set_key, last_outcome,
    outermost_calls, calls, replayable);
CREATE INDEX ix_cases_order ON cases (op, outermost_calls DESC, case_id);
CREATE INDEX ix_cases_families ON cases (op, family_id, outermost_calls, case_id);
CREATE TABLE tensor_sets (
    key INTEGER NOT NULL,
    tensor_set_id TEXT NOT NULL,
    members TEXT NOT NULL,
    PRIMARY KEY (key),
    UNIQUE (tensor_set_id)
);
CREATE TABLE origins (
    key INTEGER NOT NULL,
    origin_id TEXT NOT NULL,
    model TEXT NOT NULL,
    board TEXT NOT NULL,
    PRIMARY KEY (key),
    UNIQUE (origin_id)
);
CREATE TABLE origin_sets (
    key INTEGER NOT NULL,
    origin_set_id TEXT NOT NULL,
    members TEXT NOT NULL,
    PRIMARY KEY (key),
    UNIQUE (origin_set_id)
);
DROP TABLE usage;
CREATE TABLE usage (
    run_key INTEGER NOT NULL,
    case_key INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    outermost_calls INTEGER NOT NULL,
    timed_calls INTEGER NOT NULL,
    total_ns INTEGER NOT NULL,
    PRIMARY KEY (run_key, case_key),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE,
    FOREIGN KEY (case_key) REFERENCES cases (key)
) WITHOUT ROWID;
CREATE INDEX ix_usage_case ON usage (case_key);
DROP TABLE op_usage;
CREATE TABLE op_usage (
    run_key INTEGER NOT NULL,
    op TEXT NOT NULL,
    cases INTEGER NOT NULL,
    outermost_cases INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    outermost_calls INTEGER NOT NULL,
    timed_calls INTEGER NOT NULL,
    total_ns INTEGER NOT NULL,
    PRIMARY KEY (run_key, op),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX ix_op_usage_op ON op_usage (op);
CREATE TABLE last_attempts (
    case_key INTEGER NOT NULL,
    board TEXT NOT NULL,
    device_kind TEXT NOT NULL,
    op TEXT NOT NULL,
    attempt_key INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    PRIMARY KEY (case_key, board, device_kind),
    FOREIGN KEY (case_key) REFERENCES cases (key) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX ix_last_attempts_op ON last_attempts (op, board, device_kind, outcome);
CREATE TABLE op_attempts (
    run_key INTEGER NOT NULL,
    op TEXT NOT NULL,
    outcome TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    board TEXT,
    timed INTEGER NOT NULL,
    total_ns INTEGER NOT NULL,
    outputs INTEGER NOT NULL,
    total_pcc FLOAT NOT NULL,
    least_pcc FLOAT,
    most_pcc FLOAT,
    PRIMARY KEY (run_key, op, outcome),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX ix_op_attempts_op ON op_attempts (op);
CREATE TABLE verdicts (
    key INTEGER NOT NULL,
    verdict_id TEXT NOT NULL,
    outcome TEXT NOT NULL,
    device_kind TEXT NOT NULL,
    cause TEXT,
    suite TEXT,
    outputs TEXT,
    PRIMARY KEY (key),
    UNIQUE (verdict_id)
);
CREATE TABLE results (
    run_key INTEGER NOT NULL,
    case_key INTEGER NOT NULL,
    attempt_key INTEGER NOT NULL,
    verdict_key INTEGER NOT NULL,
    took_ns INTEGER,
    outputs INTEGER NOT NULL,
    pcc FLOAT,
    PRIMARY KEY (run_key, case_key),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE TABLE capsule_files (
    name TEXT NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (name)
);
