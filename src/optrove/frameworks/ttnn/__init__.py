"""ttnn: boards, converters, probe, executor and shadow."""
