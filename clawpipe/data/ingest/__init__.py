"""Imported conversations become datasets under contract: trajectories, scores, preference pairs, task items, quarantine."""
