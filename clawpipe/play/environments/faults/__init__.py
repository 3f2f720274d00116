"""Faults planted into real packages: tasks whose tests and whose patch are known."""
