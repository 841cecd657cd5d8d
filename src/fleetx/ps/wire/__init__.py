"""The protocol between workers and servers, and its access control."""
