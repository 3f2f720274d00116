"""An OpenAI-compatible server for registered models."""
