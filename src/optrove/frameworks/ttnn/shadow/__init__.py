"""Numbers on mock boards: torch computes beside each op."""
