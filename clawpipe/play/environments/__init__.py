"""Environments: they make task items, answer the policy in an episode, and verify the outcome."""
