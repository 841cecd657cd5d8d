"""Training with parameter servers: programs and modules on the side of a worker."""
