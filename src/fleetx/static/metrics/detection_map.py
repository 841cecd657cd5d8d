"""Mean average precision of a detector, of each batch and over batches, inside a program."""

from __future__ import annotations

from typing import Any

from fleetx.static import unique_name
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.default_programs import program_guard
from fleetx.static.graph.program import Program
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Constant
from fleetx.static.layers.creation import fill_constant
from fleetx.static.layers.detection_output import detection_map
from fleetx.static.layers.joining import concat
from fleetx.static.layers.tensor import cast

__all__ = ["DetectionMAP"]


class DetectionMAP:
    """Append the ops of mean average precision to the program; `reset` starts a new pass.

    Args:
        input: detections, a sequence per image: class, score, left, top, right, bottom.
        gt_label: the classes of the true boxes, [boxes, 1], a sequence per image.
        gt_box: the true boxes, [boxes, 4].
        gt_difficult: which of them are difficult, [boxes, 1]; none by default.
        class_num: the number of classes.
        background_label: the class to ignore.
        overlap_threshold: the minimum IoU of a correct detection with a true box.
        evaluate_difficult: whether difficult boxes count.
        ap_version: "integral" or "11point".
    """

    def __init__(
        self,
        input: Variable,
        gt_label: Variable,
        gt_box: Variable,
        gt_difficult: Variable | None = None,
        class_num: int | None = None,
        background_label: int = 0,
        overlap_threshold: float = 0.5,
        evaluate_difficult: bool = True,
        ap_version: str = "integral",
    ) -> None:
        if class_num is None:
            raise ValueError("class_num of DetectionMAP must be the number of classes, not None.")
        self.helper = LayerHelper("map_eval")
        columns = [cast(gt_label, gt_box.dtype), gt_box]
        if gt_difficult is not None:
            columns.insert(1, cast(gt_difficult, gt_box.dtype))
        label = concat(columns, axis=1)
        settings: dict[str, Any] = {
            "overlap_threshold": overlap_threshold,
            "evaluate_difficult": evaluate_difficult,
            "ap_version": ap_version,
        }
        self.cur_map = detection_map(input, label, class_num, background_label, **settings)
        kinds = {"pos_count": "int32", "true_pos": "float32", "false_pos": "float32"}
        states = [self._state(f"accum_{name}", kind) for name, kind in kinds.items()]
        self.has_state = self._state("has_state", "int32", [1])
        self.helper.set_variable_initializer(self.has_state, Constant(0))
        self.accum_map = detection_map(
            input,
            label,
            class_num,
            background_label,
            has_state=self.has_state,
            input_states=states,
            out_states=states,
            **settings,
        )
        fill_constant(self.has_state.shape, self.has_state.dtype, 1, out=self.has_state)

    def _state(self, suffix: str, dtype: str, shape: list[int] | None = None) -> Variable:
        name = f"{unique_name.generate(self.helper.name)}_{suffix}"
        return self.helper.create_variable(name=name, persistable=True, dtype=dtype, shape=shape)

    def get_map_var(self) -> tuple[Variable, Variable]:
        """Return the mAP of a batch and that of all batches since `reset`."""
        return self.cur_map, self.accum_map

    def reset(self, executor: Any, reset_program: Program | None = None) -> None:
        """Forget all batches."""
        clear(executor, [self.has_state], reset_program)


def clear(executor: Any, variables: list[Variable], program: Program | None = None) -> None:
    """Set variables of the executor's scope to 0, by a program."""
    program = Program() if program is None else program
    with program_guard(program):
        for var in variables:
            fill_constant(var.shape, var.dtype, 0, out=same_variable(program, var))
    executor.run(program)


def same_variable(program: Program, var: Variable) -> Variable:
    """Return a copy of another program's variable in this program."""
    return program.current_block().create_var(
        name=var.name, shape=var.shape, dtype=var.dtype, lod_level=var.lod_level, persistable=True
    )
