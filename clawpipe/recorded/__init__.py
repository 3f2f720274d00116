"""Check recorded tokens and log-probs against the policies that sampled them."""
