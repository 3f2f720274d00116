"""Which data taught which model, in both directions, and what must not be learned again."""
