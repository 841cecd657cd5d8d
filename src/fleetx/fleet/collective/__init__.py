"""Training by collective communication: modules, programs, and the composed step."""
