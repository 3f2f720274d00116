"""Find and edit the config file of an agent, so that the agent sends its requests to clawpipe's gateway."""
