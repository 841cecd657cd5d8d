"""What travels between workers and servers, and who may take part."""
