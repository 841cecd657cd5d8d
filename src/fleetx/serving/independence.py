"""Whether the rows of a batch can be computed together without affecting each other.

This depends on the model's declaration and on a test: two synthetic rows must give the same
results alone and together. A model that normalises over the batch, or returns one number for all of
it, is therefore never batched.
"""

from __future__ import annotations

import numpy as np

from fleetx.serving.model import ServedModel
from fleetx.serving.tensor_spec import Arrays, TensorSpec

# For dynamic dimensions other than the first.
_STAND_IN = 2


def why_not_joined(model: ServedModel) -> str | None:
    """Return why requests to this model are computed one by one; None if they can be batched."""
    for word, specs in (("input", model.inputs), ("output", model.outputs)):
        for spec in specs:
            if spec.shape[:1] != (-1,):
                return f"{word} {spec.name!r} is {spec}, whose first dimension is not dynamic"
    # Zeros and ones are valid for every type, including ids of a table.
    rows = [{spec.name: _row(spec, value) for spec in model.inputs} for value in (0, 1)]
    try:
        alone = [model.run_checked(row) for row in rows]
    except Exception:
        # Synthetic sizes may be invalid for this model: then rely on its declaration.
        return None
    together = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    try:
        outputs = model.run_checked(together)
    except Exception as error:
        return f"it computes one row, but not two: {str(error).splitlines()[0]}"
    return _difference(alone, outputs)


def _row(spec: TensorSpec, value: int) -> np.ndarray:
    sizes = [1, *(_STAND_IN if size < 0 else size for size in spec.shape[1:])]
    return np.full(sizes, value, dtype=spec.dtype)


def _difference(alone: list[Arrays], together: Arrays) -> str | None:
    for name, value in together.items():
        parts = [each[name] for each in alone]
        if any(len(part) != 1 for part in parts) or len(value) != len(parts):
            return f"output {name!r} does not have a row for every row of the inputs"
        expected = np.concatenate(parts)
        if value.dtype.kind not in "fc":
            same = np.array_equal(value, expected)
        else:
            size = float(np.nanmax(np.abs(expected), initial=0.0))
            same = np.allclose(value, expected, rtol=1e-3, atol=1e-4 * size, equal_nan=True)
        if not same:
            return f"output {name!r} of a row depends on the other rows of its batch"
    return None
