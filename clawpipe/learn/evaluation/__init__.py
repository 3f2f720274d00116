"""Held-out evaluation, paired statistics, and the gate."""
