"""What a run keeps: checkpoints to go on from, and its outcome."""
