"""Registered versions in service elsewhere: what would be sent and what it costs, put in service, watched, and ended."""
