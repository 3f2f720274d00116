"""The commands: each parses its options, calls a room below, and prints the result."""
