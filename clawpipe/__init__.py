"""clawpipe: one honest night from agent trajectories to a served model."""

__version__ = "0.1.0"
