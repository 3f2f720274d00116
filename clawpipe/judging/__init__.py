"""Scorers, and the rows of scores that they make."""
