"""Remove data from a home for good: forgotten rows, and artifacts without references."""
