"""Bytes to model objects and back, with versions and with every fault named by its path."""
