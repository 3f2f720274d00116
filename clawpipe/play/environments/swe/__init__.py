"""Tasks of repositories: a fault, tests that fail because of it, and an agent that mends it in a sandbox."""
