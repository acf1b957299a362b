"""Files: sources of rows, outputs, and their storage."""
