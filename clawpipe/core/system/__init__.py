"""This machine: its processes, ports and devices; progress of long work, and points at which tests stop it."""
