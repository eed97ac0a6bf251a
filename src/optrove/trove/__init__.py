"""Store what was recorded: one trove in an SQLite file or a PostgreSQL database."""
