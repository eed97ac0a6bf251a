"""Observe op calls while real code runs, and hand them to the recorder and to sinks."""
