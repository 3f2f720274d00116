"""Small helpers that import no other room: types of JSON, YAML, schemas, patterns, words for people."""
