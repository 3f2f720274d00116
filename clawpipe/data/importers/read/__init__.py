"""Read files of any format, or of a mapped one: what is read, rejected and counted."""
