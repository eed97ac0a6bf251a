"""Execute recorded cases on ttnn."""
