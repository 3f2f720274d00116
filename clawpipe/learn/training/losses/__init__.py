"""Loss functions over flat tensors, and advantage estimation."""
