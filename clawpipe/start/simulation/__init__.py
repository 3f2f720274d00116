"""Simulated users who talk to a served model over HTTP while nights train on what they said."""
