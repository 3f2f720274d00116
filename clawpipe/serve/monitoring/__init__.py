"""Figures of nights for Prometheus, as text and as a file, and the Grafana dashboard that draws them."""
