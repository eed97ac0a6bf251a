"""The flight recorder's files: format, writer, reader."""
