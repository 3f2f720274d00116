"""Train a policy on curated rows, in a process that resumes from its checkpoints."""
