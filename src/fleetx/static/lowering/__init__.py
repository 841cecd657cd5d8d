"""Lowering: a program, its feeds and its fetches become one straight-line torch function.

`needed_ops` drops ops that nothing needs, `backward_call` turns a backward pass into one call of
autograd, `fusion` and `weight_decay` fuse ops into one torch call, `segments` are recomputed in
backward, `plan` orders all of them, `codegen` (with `step_variables` and
`segment_code`) writes the function as the records of `generated_code`, `compiled_step` hands it to
torch's compiler, `blocks` runs the bodies of control flow.
"""

from fleetx.static.lowering.codegen import LoweredStep, lower

__all__ = ["LoweredStep", "lower"]
