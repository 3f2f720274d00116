"""The tools by which an agent trains itself, over MCP: choose an environment, change settings, start, watch and stop nights."""
