"""The role of a process in its job, and its communication with the others."""
