"""From rows to weights: one run in processes of its own, which goes on from its checkpoints."""
