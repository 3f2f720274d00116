"""The processes of a training run: who starts them, what they are to each other, and what they cost."""
