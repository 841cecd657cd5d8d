"""Networks by the names of the documents."""
