"""Scorers, and the step in which they score a dataset."""
