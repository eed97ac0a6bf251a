"""The trove: recordings and results in an SQLite file or a PostgreSQL database."""
