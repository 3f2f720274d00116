"""Servers as child processes: start them, wait until they answer, stop them. Imports none of them."""
