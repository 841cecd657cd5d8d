"""Programs that DistributeTranspiler shows: the op lists that Paddle 1.8 writes, and what runs."""
