"""What the gateway has captured: segments of records on disk, and the sessions and turns that the records tell of."""
