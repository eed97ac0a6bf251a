-- From version 1 to 2: sweeps with their plans, notes of attempts, calls by the entries of run
-- configurations. Never edit a released script.

ALTER TABLE attempts ADD COLUMN notes TEXT;
DROP INDEX ix_attempts_run;
CREATE INDEX ix_attempts_run ON attempts (run_key, outcome);
DROP INDEX ix_attempts_case;
CREATE INDEX ix_attempts_case ON attempts (case_key, board, outcome);
CREATE INDEX ix_runs_started ON runs (started_at);
CREATE TABLE sweeps (
    run_key INTEGER NOT NULL,
    plan_id TEXT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (run_key),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE
);
CREATE TABLE planned (
    run_key INTEGER NOT NULL,
    place INTEGER NOT NULL,
    case_key INTEGER NOT NULL,
    suite TEXT,
    device_kind TEXT NOT NULL,
    board TEXT,
    PRIMARY KEY (run_key, place),
    UNIQUE (run_key, case_key),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE,
    FOREIGN KEY (case_key) REFERENCES cases (key)
) WITHOUT ROWID;
CREATE INDEX ix_planned_case ON planned (case_key);
CREATE TABLE config_calls (
    recording_key INTEGER NOT NULL,
    place INTEGER NOT NULL,
    path TEXT NOT NULL,
    case_key INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    PRIMARY KEY (recording_key, place),
    FOREIGN KEY (recording_key) REFERENCES recordings (key) ON DELETE CASCADE,
    FOREIGN KEY (case_key) REFERENCES cases (key)
) WITHOUT ROWID;
CREATE INDEX ix_config_calls_case ON config_calls (case_key);
