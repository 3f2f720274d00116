"""The gate's verdict: statistics of paired results, the evidence, the looks, and PROMOTE, HOLD or REJECT."""
