"""What is minimised: clipped ratios of tokens, preferences, and the advantages of turns."""
