-- From version 3 to 4: the processes that execute Runs of cases. Never edit a released script.

CREATE TABLE sessions (
    run_key INTEGER NOT NULL,
    begun_at TEXT NOT NULL,
    process TEXT NOT NULL,
    alive_at TEXT NOT NULL,
    ending TEXT,
    PRIMARY KEY (run_key, begun_at, process),
    FOREIGN KEY (run_key) REFERENCES runs (key) ON DELETE CASCADE
) WITHOUT ROWID;
