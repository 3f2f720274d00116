"""Which trajectories say nearly the same, and which are near to what evaluation asks."""
