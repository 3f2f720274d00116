"""Users' own code: found in their files and packages, loaded, and counted where it raises."""
