"""The processes of a training run: their start, their communication and their memory."""
