"""Store immutable artifacts by their content, locally and in a shared storage, and compute digests of the code that made them."""
