"""Checkpoints and the outcome of a training run."""
