"""Planning a job without its hardware: which parallel layouts fit into memory, and step times."""
