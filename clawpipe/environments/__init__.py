"""Tasks: items, the world around the policy, and how an episode is judged."""
