"""What programs that write code keep of their sessions: Gemini CLI, Copilot, OpenHands, Aider."""
