"""Sums over all batches for metrics of click prediction, kept in the program."""

from __future__ import annotations

from fleetx.exports import export_defined
from fleetx.static.building.layer_helper import LayerHelper
from fleetx.static.graph.variable import Variable
from fleetx.static.initializer import Constant


def ctr_metric_bundle(input: Variable, label: Variable) -> tuple[Variable, ...]:
    """Add a batch to six sums, which persist, and return them.

    They are of squared errors, absolute errors, predictions, sigmoids of predictions, labels, and
    samples. Their quotients by the number of samples are metrics: RMSE is the root of the first,
    MAE the second, the predicted click rate the third.

    Args:
        input: probabilities of shape [N, 1].
        label: 0 or 1, of the same shape.
    """
    if tuple(input.shape) != tuple(label.shape):
        raise ValueError(
            f"input and label of ctr_metric_bundle have the same shape, "
            f"not {input.shape} and {label.shape}."
        )
    helper = LayerHelper("ctr_metric_bundle", input=input)
    float32 = "float32"
    error = helper.output_of("elementwise_sub", {"X": input, "Y": label}, dtype=float32)
    sigmoid = helper.output_of("sigmoid", {"X": input}, dtype=float32)
    ones = helper.output_of(
        "fill_constant_batch_size_like",
        {"Input": label},
        {"shape": [-1, 1], "dtype": int(error.dtype), "value": 1.0},
        dtype=float32,
    )
    batch = [
        helper.output_of("squared_l2_norm", {"X": error}, dtype=float32),
        helper.output_of("l1_norm", {"X": error}, dtype=float32),
        *(helper.output_of("reduce_sum", {"X": x}, dtype=float32) for x in (input, sigmoid)),
        *(helper.output_of("reduce_sum", {"X": x}, dtype=float32) for x in (label, ones)),
    ]
    sums = []
    for value in batch:
        total = helper.create_global_variable(persistable=True, dtype=float32, shape=[1])
        helper.set_variable_initializer(total, Constant(0.0, force_cpu=True))
        helper.append_op(
            type="elementwise_add", inputs={"X": [value], "Y": [total]}, outputs={"Out": [total]}
        )
        sums.append(total)
    return tuple(sums)


export_defined(globals())
