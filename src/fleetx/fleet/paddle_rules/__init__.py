"""How Paddle selects, drops and names things, and the interfaces of its 1.x."""
