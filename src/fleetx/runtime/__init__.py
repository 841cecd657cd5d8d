"""Facts about this process that need no torch: its place in the job, and its machine.

The launcher writes what is read here; every other package may use it.
"""
