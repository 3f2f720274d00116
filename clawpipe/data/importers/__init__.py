"""Readers of foreign trajectory formats; lines that they cannot read are rejected with a reason, never dropped."""
