"""Check recorded tokens and log-probs against the policies that sampled them, and render what was recorded as text."""
