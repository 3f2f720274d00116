"""Episodes of a policy in an environment, shard by shard."""
