"""Classifiers of images."""

from fleetx.static.models import *  # noqa: F403
