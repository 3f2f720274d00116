"""What samples tokens and knows their log-probs."""
