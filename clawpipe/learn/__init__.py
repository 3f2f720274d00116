"""A policy is trained, measured on held-out items, and passed or stopped by the gate."""
