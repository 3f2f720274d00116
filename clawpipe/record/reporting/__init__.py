"""Summaries of a night for people: on the terminal and as a report."""
