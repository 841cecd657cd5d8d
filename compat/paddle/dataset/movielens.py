"""The data set `movielens`, from local files."""

from fleetx.data.movielens import *  # noqa: F403
