"""Helpers that rewrite programs."""

from paddle.fluid.transpiler.details.checkport import *  # noqa: F403
from paddle.fluid.transpiler.details.program_utils import *  # noqa: F403
