"""The optrove command: one module per section of ``optrove --help``."""
