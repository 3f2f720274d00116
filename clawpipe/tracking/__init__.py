"""Where a night's figures go besides its own record: MLflow always, W&B where it is asked for."""
