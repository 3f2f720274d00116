"""Processes that hold a policy: they roll out, score, merge and measure, one job at a time."""
