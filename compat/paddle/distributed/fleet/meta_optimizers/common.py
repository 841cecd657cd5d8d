"""The roles of a program's ops, from their attributes."""

from fleetx.static.graph.operator import Operator, OpRole

__all__ = ["OP_ROLE_KEY", "OP_ROLE_VAR_KEY", "OpRole", "is_backward_op", "is_loss_grad_op"]
__all__ += ["is_optimizer_op", "is_update_op"]

OP_ROLE_KEY, OP_ROLE_VAR_KEY = "op_role", "op_role_var"


def is_update_op(op: Operator) -> bool:
    """Return whether an op updates a parameter."""
    return {"Param", "Grad", "LearningRate"} <= set(op.input_names)


def is_loss_grad_op(op: Operator) -> bool:
    """Return whether an op computes the gradient of the loss."""
    return bool(op.op_role & OpRole.Backward and op.op_role & OpRole.Loss)


def is_backward_op(op: Operator) -> bool:
    """Return whether an op belongs to the backward pass."""
    return bool(op.op_role & OpRole.Backward)


def is_optimizer_op(op: Operator) -> bool:
    """Return whether an op belongs to the update."""
    return bool(op.op_role & OpRole.Optimize)
