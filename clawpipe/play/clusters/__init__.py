"""Where the work of steps is done: in the night's own process, or by the workers of a cluster of Dask or Ray."""
