"""ttnn: mock boards to run it on, and the converters of its types."""
