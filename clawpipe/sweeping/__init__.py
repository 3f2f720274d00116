"""Nights with different settings, and which settings are best."""
