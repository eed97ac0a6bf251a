"""Converters of ttnn types, in both directions."""
