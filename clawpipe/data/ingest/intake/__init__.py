"""One run of ingest: from pieces of files to datasets."""
