"""Lineage between data and models, in both directions, and which models have seen what was forgotten."""
