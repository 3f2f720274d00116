"""Lineage between data and models, in both directions, and tombstones of forgotten data."""
