"""A policy: base weights, adapter, tokenizer, chat syntax, and the digest that names all of it."""
