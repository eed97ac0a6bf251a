"""PageRequest at a trove in a browser: pages over one trove, each with a twin for machines."""
