"""The training step: five stages, what a technique is, and how techniques are composed.

Read `stages` first, then `train_step` (PyTorch modules) and `program_step` (programs), then
`technique` and `compose`.
"""
