"""Tool-call formats: how each family of models writes its calls."""
