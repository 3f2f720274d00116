"""Held-out items, conversations and pairs: drawn, answered and scored."""
