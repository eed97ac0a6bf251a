"""Live objects to Values, Values to JSON, and back; with hashes."""
