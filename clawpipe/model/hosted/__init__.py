"""Clients of services that hold weights: where policies are trained, sampled and served on others' machines."""
