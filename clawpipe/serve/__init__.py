"""Models answer others: the server, the gateway, agents that use them, and export for other engines."""
