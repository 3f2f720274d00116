"""Captured turns and sessions: what is stored of them, and judgements that come later."""
