"""Messages of a conversation, and how an answer ended."""
