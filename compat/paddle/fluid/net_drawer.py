"""Programs as drawings."""

from fleetx.static.inspection.drawing import draw_graph
from fleetx.static.inspection.net_drawing import draw_edge, draw_node, parse_graph, unique_id
