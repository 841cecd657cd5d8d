"""Programs in files, for comparisons."""

from fleetx.static.inspection.program_files import (
    check_pruned_program_vars,
    graphviz,
    load_program,
    parse_program,
    program_type_trans,
    save_program,
)
