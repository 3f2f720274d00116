"""Servers as child processes: start, wait until they answer, stop. Imports none of them."""
