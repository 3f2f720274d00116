"""A policy acts: environments, sandboxes, rollouts, and the judges of what came of it."""
