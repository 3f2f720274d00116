"""Where records are read from: files, folders, tables, archives, streams and URLs, as lines."""
