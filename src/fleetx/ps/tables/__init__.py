"""Dense and sparse tables: rows, updates, files."""
