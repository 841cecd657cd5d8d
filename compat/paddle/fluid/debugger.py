"""Programs as readable lines and as drawings."""

from fleetx.static.inspection.drawing import (
    draw_block_graphviz,
    pprint_block_codes,
    pprint_program_codes,
)
