"""Gradients of programs: the backward pass written as ops, and what it recomputes.

`backward` appends the gradient ops, `grad_op` defines them from the forward ops, and
`recomputed_segments` chooses what runs again between checkpoints.
"""
