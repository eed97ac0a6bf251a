"""The only package that imports ttnn, torch or numpy, and only when asked to."""
