"""Files of others to Cases and back: tt-metal's master files, op lines, parameter files, text."""
