"""Lowering: a program, its feeds and its fetches become one straight-line torch function.

`analysis` drops ops that nothing needs, `backward_call` turns a backward pass into one call of
autograd, `fusion` joins ops that torch has one call for, `codegen` writes the function, `blocks`
runs the bodies of control flow.
"""

from fleetx.static.lowering.codegen import LoweredStep, lower

__all__ = ["LoweredStep", "lower"]
