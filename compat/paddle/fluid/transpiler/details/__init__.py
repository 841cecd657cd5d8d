"""Helpers of those who change programs."""

from paddle.fluid.transpiler.details.checkport import wait_server_ready
from paddle.fluid.transpiler.details.program_utils import (
    delete_ops,
    find_op_by_input_arg,
    find_op_by_output_arg,
)
