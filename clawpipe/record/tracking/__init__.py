"""Trackers of a night's metrics: MLflow always, W&B on request."""
