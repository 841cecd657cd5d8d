"""FLAGS_check_nan_inf: the first op whose results are not finite ends the run, with its name."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fleetx import static
from fleetx.static import layers
from fleetx.static.errors import EnforceNotMet
from fleetx.static.run.flags import get_flags, set_flags


@pytest.fixture
def checks() -> Iterator[None]:
    before = get_flags("FLAGS_check_nan_inf")
    set_flags({"FLAGS_check_nan_inf": True})
    yield
    set_flags(before)


def run(feed: list[float], fetch: object) -> np.ndarray:
    executor = static.Executor(static.CPUPlace())
    executor.run(static.default_startup_program())
    return executor.run(feed={"x": np.array(feed, "float32")}, fetch_list=[fetch])[0]


def test_the_op_is_named(checks: None) -> None:
    x = static.data("x", [2], "float32")
    out = layers.log(layers.sqrt(x)) * 2.0
    np.testing.assert_allclose(run([1.0, 4.0], out), [0.0, 2 * np.log(2)], rtol=1e-6)
    with pytest.raises(EnforceNotMet, match=r"op 'sqrt' \(x -> .*find nan or inf.*contains nan"):
        run([1.0, -1.0], out)
    with pytest.raises(EnforceNotMet, match="op 'log' .*contains inf"):
        run([1.0, 0.0], out)


def test_gradients_are_checked(checks: None) -> None:
    x = static.data("x", [2], "float32")
    x.stop_gradient = False
    loss = layers.reduce_sum(layers.sqrt(x))
    static.append_backward(loss)
    with pytest.raises(EnforceNotMet, match=r"the backward pass: find nan or inf"):
        run([1.0, 0.0], "x@GRAD")


def test_without_the_flag_nothing_is_checked() -> None:
    x = static.data("x", [2], "float32")
    assert np.isnan(run([1.0, -1.0], layers.sqrt(x))[1])
