"""Names of the memory passes of old Paddle releases; memory is freed early without them."""

import warnings
from typing import Any


def memory_optimize(
    input_program: Any,
    skip_opt_set: Any = None,
    print_log: bool = False,
    level: int = 0,
    skip_grads: bool = True,
) -> None:
    """Warn that this call does nothing: values are freed as soon as no op needs them."""
    warnings.warn(
        "memory_optimize() does nothing: values are freed as soon as no op needs them.",
        DeprecationWarning,
        stacklevel=2,
    )


def release_memory(input_program: Any, skip_opt_set: Any = None) -> None:
    """Warn that this call does nothing: values are freed as soon as no op needs them."""
    warnings.warn(
        "release_memory() does nothing: values are freed as soon as no op needs them.",
        DeprecationWarning,
        stacklevel=2,
    )
