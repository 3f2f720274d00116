"""The record of a night: its settings, steps, times and verdict."""
