"""The commands. Each says what it does, asks a room below, and prints what came of it."""
