"""Sweeps: nights with different settings, to find the best ones."""
