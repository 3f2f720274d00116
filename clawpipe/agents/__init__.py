"""The configs of agents: where each agent keeps its own, and what in it makes the agent ask the gateway."""
