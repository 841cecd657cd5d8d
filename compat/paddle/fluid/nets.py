"""Small nets of several layers."""

from fleetx.static.nets import *  # noqa: F403
