"""The processes of a training run: their start and their communication."""
