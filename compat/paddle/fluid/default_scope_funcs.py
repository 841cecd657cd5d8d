"""The names of fluid's stack of local scopes."""

from fleetx.static.run.scope_stack import *  # noqa: F403
from fleetx.static.run.scope_stack import __all__
