"""Trainers, one module per kind: `training_job` reads its rows, and a subclass of `PackedTrainer` computes their loss."""
