"""Planning a job without its hardware: which ways to divide a model fit, and what a step takes."""
