"""A policy: base weights, adapter, tokenizer, tool-call format, and the digest of all of it."""
