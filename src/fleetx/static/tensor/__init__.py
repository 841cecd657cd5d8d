"""Functions of tensors with the signatures of Paddle 2.x: `sum(x, axis, dtype, keepdim)`, ...

They append the same kind of ops as `fleetx.static.layers`, whose signatures are those of 1.x.
"""

from fleetx.static.tensor import (
    attribute,
    creation,
    linalg,
    logic,
    manipulation,
    math,
    random,
    search,
    stat,
)
from fleetx.static.tensor.attribute import *  # noqa: F403
from fleetx.static.tensor.creation import *  # noqa: F403
from fleetx.static.tensor.linalg import *  # noqa: F403
from fleetx.static.tensor.logic import *  # noqa: F403
from fleetx.static.tensor.manipulation import *  # noqa: F403
from fleetx.static.tensor.math import *  # noqa: F403
from fleetx.static.tensor.random import *  # noqa: F403
from fleetx.static.tensor.search import *  # noqa: F403
from fleetx.static.tensor.stat import *  # noqa: F403

_MODULES = (attribute, creation, linalg, logic, manipulation, math, random, search, stat)

__all__ = [name for module in _MODULES for name in module.__all__]
