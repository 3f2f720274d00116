"""Scorers, and the step that writes their scores of a dataset."""
