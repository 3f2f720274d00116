"""Sources of lines: files, folders, tables, packed files, streams and URLs."""
