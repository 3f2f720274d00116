"""What chat APIs and texts with tool calls write, read into messages: one reader and one writer for each thing."""
