"""Each user verb as one function that wires the stages below."""
