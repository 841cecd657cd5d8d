"""Programs as drawings."""

from fleetx.static.inspection.drawing import draw_graph
