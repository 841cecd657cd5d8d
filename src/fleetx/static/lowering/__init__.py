"""Lowering: a program, its feeds and its fetches become one straight-line torch function.

`needed_ops` drops ops that nothing needs, `backward_call` turns a backward pass into one call of
autograd, `fusion` and `weight_decay` join ops that torch has one call for, `segments` are what is
computed again in backward, `plan` puts it all in order, `codegen` (with `step_variables` and
`segment_code`) writes the function as the records of `generated_code`, `compiled_step` hands it to
torch's compiler, `blocks` runs the bodies of control flow.
"""

from fleetx.static.lowering.codegen import LoweredStep, lower

__all__ = ["LoweredStep", "lower"]
