"""Observe op calls while real code runs, and hand them to whoever asked for them."""
