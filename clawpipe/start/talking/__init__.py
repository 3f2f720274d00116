"""Talk to a served model in the terminal: a streamed conversation, the tools that it calls, thumbs."""
