"""Tell people how nights went: events, the outbox that keeps them until they are delivered, and their delivery."""
