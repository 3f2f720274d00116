"""What people asked to forget: found in every form that it was stored in, and kept out by tombstones."""
