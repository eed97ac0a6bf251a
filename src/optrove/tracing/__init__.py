"""The trace verb: run targets, follow them, store and summarize what they called."""
