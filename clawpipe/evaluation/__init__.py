"""Held-out episodes, paired statistics, and the gate that decides."""
