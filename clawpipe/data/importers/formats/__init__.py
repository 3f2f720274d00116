"""The formats: how a record of each is recognised, and read."""
