"""The model that is trained: adapters, heads, and attention over packed trees."""
