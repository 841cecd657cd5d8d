"""What a process knows about itself without importing torch: its place in the job, and its machine.

The launcher writes what is read here; every other part may ask.
"""
