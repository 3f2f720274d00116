"""What a night costs in memory and on disk, before it starts."""
