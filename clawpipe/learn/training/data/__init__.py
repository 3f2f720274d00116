"""Read rows for training, and plan how they are packed."""
