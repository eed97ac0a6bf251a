"""PyTorch: converters, probe and executor."""
