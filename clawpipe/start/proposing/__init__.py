"""Look at a file before anything is stored: what is in it, and which night fits it."""
