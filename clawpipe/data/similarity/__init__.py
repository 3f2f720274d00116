"""Find near-duplicates among trajectories, and trajectories that are near to held-out questions."""
