"""What evaluations write of their attempts: Inspect, Harbor (ATIF), BFCL, ToolBench, verifiers."""
