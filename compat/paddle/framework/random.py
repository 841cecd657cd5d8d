"""Seeds and states of random generators."""

from fleetx.static.graph.default_programs import default_main_program, default_startup_program
from paddle.framework import get_cuda_rng_state, seed, set_cuda_rng_state

__all__ = ["get_cuda_rng_state", "seed", "set_cuda_rng_state"]


def _manual_program_seed(seed: int) -> None:
    """Seed the random ops of the default programs."""
    for program in (default_main_program(), default_startup_program()):
        program.random_seed = seed
