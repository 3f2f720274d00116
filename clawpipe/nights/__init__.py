"""The record of a night: its identity, its steps, its times, its verdict."""
