"""Compute the log-probs of reference, proximal and teacher policies for training rows, in a separate process."""
