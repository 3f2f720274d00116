"""A proxy before any engine that speaks OpenAI's interface: it captures every turn before the turn's answer ends."""
