"""The memory that a night needs, estimated before it starts."""
