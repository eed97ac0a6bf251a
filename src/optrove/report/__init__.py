"""What was found, as values to be shown: summaries."""
