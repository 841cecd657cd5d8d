"""FleetUtil: helpers of Paddle 1.8 for jobs with parameter servers.

Messages of worker 0, the AUC over all workers, programs in files. Helpers for Baidu's serving
(donefiles, xbox, cache models) are not included.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from fleetx.fleet import metrics
from fleetx.fleet.utilities import UtilBase
from fleetx.runtime import worker_environment
from fleetx.static.graph.program import Program
from fleetx.static.inspection import program_files
from fleetx.static.run.scope import Scope, global_scope

_log = logging.getLogger("fleetx.fleet")


class FleetUtil:
    """Helpers of one worker."""

    def __init__(self, mode: str = "pslib") -> None:
        if mode not in ("pslib", "transpiler"):
            raise ValueError(f"mode must be 'pslib' or 'transpiler', not {mode!r}.")

    def rank0_print(self, s: str) -> None:
        """Print on worker 0."""
        if worker_environment.detect().rank == 0:
            print(s, flush=True)

    def rank0_info(self, s: str) -> None:
        """Log on worker 0."""
        if worker_environment.detect().rank == 0:
            _log.info("%s", s)

    def rank0_error(self, s: str) -> None:
        """Log an error on worker 0."""
        if worker_environment.detect().rank == 0:
            _log.error("%s", s)

    def set_zero(
        self,
        var_name: str,
        scope: Scope | None = None,
        place: Any = None,
        param_type: str = "int64",
    ) -> None:
        """Set all entries of a variable to zero."""
        del place
        variable = (scope or global_scope()).find_var(var_name)
        if variable is None or variable.value is None:
            raise ValueError(f"variable {var_name!r} has no value in the scope.")
        shape = tuple(variable.value.shape)
        variable.get_tensor().set(np.zeros(shape, param_type))

    def get_global_auc(
        self,
        scope: Scope | None = None,
        stat_pos: str = "_generated_var_2",
        stat_neg: str = "_generated_var_3",
        util: UtilBase | None = None,
    ) -> float | None:
        """Return the AUC over all workers; None if there are no statistics."""
        found = scope or global_scope()
        if found.find_var(stat_pos) is None or found.find_var(stat_neg) is None:
            self.rank0_print("not found auc bucket")
            return None
        return metrics.auc(stat_pos, stat_neg, found, util)

    def print_global_auc(
        self,
        scope: Scope | None = None,
        stat_pos: str = "_generated_var_2",
        stat_neg: str = "_generated_var_3",
        print_prefix: str = "",
    ) -> None:
        """Print the area under the curve over all workers, on the first one."""
        value = self.get_global_auc(scope, stat_pos, stat_neg)
        self.rank0_print(f"{print_prefix} global auc = {value}")

    def program_type_trans(self, prog_dir: str, prog_fn: str, is_text: bool) -> str:
        """Write a text file's program as binary, or the other way round."""
        return program_files.program_type_trans(prog_dir, prog_fn, is_text)

    def draw_from_program(self, program: Program, output_dir: str, output_name: str) -> None:
        """Draw a program."""
        program_files.graphviz(program.global_block(), output_dir, output_name)

    def draw_from_program_file(
        self, model_filename: str, is_text: bool, output_dir: str, output_name: str
    ) -> None:
        """Draw the program in a file."""
        program = program_files.load_program(model_filename, is_text)
        self.draw_from_program(program, output_dir, output_name)

    def parse_program_proto(self, prog_path: str, is_text: bool, output_dir: str) -> None:
        """Write lists of what is in a file's program."""
        program_files.parse_program(program_files.load_program(prog_path, is_text), output_dir)
