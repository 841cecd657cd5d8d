"""Graphs in the language of Graphviz."""

from fleetx.static.inspection.dot_graph import *  # noqa: F403
