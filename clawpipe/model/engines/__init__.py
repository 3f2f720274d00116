"""Engines: they sample tokens from a policy and return the log-prob of each."""
