"""The trace verb: run targets, follow them, store and summarize their calls."""
