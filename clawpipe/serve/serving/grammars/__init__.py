"""Grammars that answers are held to: values of a JSON Schema, and calls in the policy's own format."""
