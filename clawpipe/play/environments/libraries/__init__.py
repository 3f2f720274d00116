"""Environments of other libraries, each played by the library itself, in a Python that has it."""
