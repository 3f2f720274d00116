"""Export weights for other engines and datasets in other formats, and measure how far served weights are from trained ones."""
