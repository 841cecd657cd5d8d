"""Programs as readable lines and as drawings."""

from fleetx.static.inspection.description_text import *  # noqa: F403
from fleetx.static.inspection.drawing import draw_block_graphviz
