"""Rollouts: episodes of a policy in an environment, generated shard by shard."""
