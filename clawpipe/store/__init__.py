"""Immutable artifacts by their content, here and in a storage that several homes share; and the code that made them."""
