"""What is written to disk: atomic files, a checksummed archive, tables as CSV, folders."""
