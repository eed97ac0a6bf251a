"""Generated tests, and shrinking of failing cases."""
