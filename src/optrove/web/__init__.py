"""Browse a trove: HTML pages, each also available as JSON."""
