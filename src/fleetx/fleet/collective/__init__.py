"""Training by collective communication: modules, programs, and what techniques make of a step."""
