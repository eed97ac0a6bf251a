"""Observe ttnn calls, and record repeated ones on a fast path."""
