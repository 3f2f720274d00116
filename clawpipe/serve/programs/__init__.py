"""Agent programs as rollouts: an endpoint that answers them, their runs in sandboxes, and the rows of what was sampled."""
