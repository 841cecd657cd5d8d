"""Input of programs: reader decorators, feeders, loaders and variable-length tensors."""
