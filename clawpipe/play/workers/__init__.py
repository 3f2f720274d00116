"""Worker processes: each holds one policy and rolls out, scores, merges or compares it, one job at a time."""
