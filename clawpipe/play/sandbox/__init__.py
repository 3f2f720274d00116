"""Sandboxes: where programs that nobody has read run, with files and processes of their own, limits, and no network."""
