"""The trained model: adapters, heads, and attention over packed trees."""
