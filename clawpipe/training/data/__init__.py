"""Rows that a trainer takes, and how they are packed."""
