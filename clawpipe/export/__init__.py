"""What leaves a night: merged and quantised weights, how far they are from what was trained, files for other engines."""
