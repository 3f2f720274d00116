"""What chat applications export: ChatGPT, Claude.ai, Open WebUI, LibreChat."""
