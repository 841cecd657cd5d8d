"""Facts about this process that need no torch: its role and rank in the job, and its machine.

The launcher writes the variables that are read here; every other package may use them.
"""
