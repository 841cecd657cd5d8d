"""Parameter servers: dense slices and huge sparse tables, and the workers that train with them."""
