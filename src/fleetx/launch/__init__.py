"""Starting processes, and what a started process knows about the others."""
