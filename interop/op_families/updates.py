"""Cases of update ops: dense ones with further settings, and on the rows of sparse gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from op_cases import Draw, OpCase, Rows, family, settings

from op_families.tables import NEW_NAMES, UPDATES


@family
def further_updates(draw: Draw) -> Iterator[OpCase]:
    for attrs in settings(rho=[0.0, 0.95], epsilon=[1e-6, 0.1]):
        inputs = {"Param": draw.floats(3, 5), "Grad": draw.floats(3, 5)}
        inputs |= {s: draw.floats(3, 5, low=0) for s in ("AvgSquaredGrad", "AvgSquaredUpdate")}
        yield OpCase("adadelta", inputs, attrs, "ParamOut AvgSquaredGradOut AvgSquaredUpdateOut")
    for window, most, least in ((0.5, 10, 2), (0.0, 100, 100), (1.0, 3, 1)):
        for counts in ((1, 2, 9), (4, 0, 16383)):
            inputs = {"param": draw.floats(3)}
            inputs |= {f"in_sum_{i}": draw.floats(3) for i in (1, 2, 3)}
            names = ("in_num_accumulates", "in_old_num_accumulates", "in_num_updates")
            inputs |= {s: np.array([n]) for s, n in zip(names, counts, strict=True)}
            attrs = {"average_window": window, "max_average_window": most}
            attrs["min_average_window"] = least
            outputs = {s.replace("in_", "out_", 1): s for s in inputs if s != "param"}
            yield OpCase("average_accumulates", inputs, attrs, " ".join(outputs), in_place=outputs)
    for norm, step in ((False, 0.0), (True, 3.0), (True, 9.0)):
        inputs = {"Param": draw.floats(3), "Grad": draw.floats(3), "Velocity": draw.floats(3)}
        inputs |= {"LearningRate": draw.floats(1, low=0.1)}
        inputs |= {"current_step": np.array([step], "float32"), "nranks": np.array([2], "float32")}
        attrs = {"mu": 0.9, "use_nesterov": norm, "rampup_begin_step": 5.0}
        yield OpCase(
            "dgc_momentum", inputs, attrs, "ParamOut VelocityOut Grad_out",
            in_place={"Grad_out": "Grad", "ParamOut": "Param", "VelocityOut": "Velocity"},
        )  # fmt: skip
    for nesterov, method, coeff in ((False, "", 0.0), (True, "", 0.0)):
        attrs = {"mu": 0.0, "use_nesterov": nesterov, "regularization_method": method}
        attrs["regularization_coeff"] = coeff
        inputs = {"Param": draw.floats(3), "Grad": draw.floats(3), "Velocity": draw.floats(3)}
        inputs |= {"LearningRate": draw.floats(1, low=0.1)}
        yield OpCase("momentum", inputs, attrs, "ParamOut VelocityOut")
    for attrs in settings(lr_power=[-0.5, -0.3, 0.0], l1=[0.0, 0.4], l2=[0.0, 0.1]):
        inputs = {"Param": draw.floats(3), "Grad": draw.floats(3)}
        inputs |= {"SquaredAccumulator": draw.floats(3, low=0.1)}
        inputs |= {"LinearAccumulator": draw.floats(3), "LearningRate": draw.floats(1, low=0.1)}
        yield OpCase("ftrl", inputs, attrs, "ParamOut SquaredAccumOut LinearAccumOut")


@family
def sparse_updates(draw: Draw) -> Iterator[OpCase]:
    """Gradients with rows that occur twice, out of order where Paddle takes that, and none."""
    for name in ("sgd", "momentum", "adagrad", "rmsprop", "adam"):
        state, attrs = UPDATES[name]
        for rows in ([4, 0, 4, 1], [0, 2, 3], []):
            if name in ("adagrad", "rmsprop") and not rows:
                continue  # refused by Paddle
            skips = name in ("momentum", "adam") and not rows
            why = "an update without rows is left out, moments do not decay" if skips else ""
            for more in ({}, {"lazy_mode": True}) if name == "adam" else ({},):
                grad = Rows(rows, 5, draw.floats(len(rows), 3))
                inputs: dict[str, Any] = {"Param": draw.floats(5, 3), "Grad": grad}
                inputs["LearningRate"] = draw.floats(1, low=0.01, high=0.1)
                for slot in state.split():
                    shape = (1,) if slot.endswith("Pow") else (5, 3)
                    inputs[slot] = draw.floats(*shape, low=0.1, high=0.9)
                slots = ["Param", *state.split()]
                outputs = {NEW_NAMES.get(slot, f"{slot}Out"): slot for slot in slots}
                yield OpCase(
                    name,
                    inputs,
                    {**attrs, **more},
                    " ".join(outputs),
                    in_place=outputs,
                    differs=why,
                )


@family
def rows(draw: Draw) -> Iterator[OpCase]:
    """Ops that take the rows of a sparse gradient."""
    for ids in ([4, 0, 4, 1], [2], [3, 1]):
        x = Rows(ids, 5, draw.floats(len(ids), 3))
        yield OpCase("get_tensor_from_selected_rows", {"X": x})
        for name, attrs in (
            ("merge_selected_rows", {}),
            ("square", {}),
            ("clip_by_norm", {"max_norm": 0.3}),
            ("clip", {"min": -0.2, "max": 0.3}),
        ):
            twice = name == "square" and len(set(ids)) < len(ids)
            why = "squares rows that occur twice before adding them" if twice else ""
            yield OpCase(name, {"X": x}, attrs, sparse="Out", differs=why)
        attrs, place = {"scale": 0.5}, {"Out": "X"}
        yield OpCase("scale", {"X": x}, attrs, in_place=place, sparse="Out")
        more = Rows([0, 2], 5, draw.floats(2, 3))
        yield OpCase("sum", {"X": [x, more]}, sparse="Out")
        yield OpCase("sum", {"X": [draw.floats(5, 3), x]})
        inputs = {"X": x, "Y": draw.floats(1)}
        yield OpCase("elementwise_mul", inputs, {"axis": -1}, sparse="Out")
