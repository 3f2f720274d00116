"""Recorded tokens beside the policies that are said to have sampled them."""
