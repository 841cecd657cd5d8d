"""LSTM over padded sequences, compared with torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from op_check import check_op

import paddle.fluid as fluid
from fleetx import static


@pytest.mark.parametrize("both_ways", [False, True])
def test_lstm_has_the_weights_of_cudnn(both_ways: bool) -> None:
    ways, layers, size, hidden = 1 + both_ways, 2, 3, 4
    torch.manual_seed(0)
    reference = torch.nn.LSTM(size, hidden, layers, bidirectional=both_ways)
    matrices = [p for name, p in reference.named_parameters() if name.startswith("weight")]
    biases = [p for name, p in reference.named_parameters() if name.startswith("bias")]
    weight = torch.cat([p.detach().reshape(-1) for p in matrices + biases]).numpy()
    x = torch.randn(5, 2, size)
    h, c = torch.randn(2, ways * layers, 2, hidden)

    def build() -> Any:
        shape = [ways * layers, 2, hidden]
        return fluid.layers.lstm(
            fluid.data("x", [5, 2, size]),
            *(fluid.data(name, shape) for name in "hc"),
            5,
            hidden,
            layers,
            is_bidirec=both_ways,
            default_initializer=fluid.initializer.NumpyArrayInitializer(weight),
        )

    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        fetches = list(build())
    exe, feed = static.Executor(), {"x": x.numpy(), "h": h.numpy(), "c": c.numpy()}
    with static.scope_guard(static.Scope()):
        exe.run(startup)
        found = exe.run(main, feed=feed, fetch_list=fetches)
    out, state = reference(x, (h, c))
    for mine, theirs in zip(found, (out, *state), strict=True):
        np.testing.assert_allclose(mine, theirs.detach(), rtol=1e-5, atol=1e-6)


def test_weights_of_another_size_are_refused() -> None:
    size = {"input_size": 3, "hidden_size": 4}
    inputs = {"Input": np.ones((2, 1, 3)), "InitH": np.ones((1, 1, 4)), "InitC": np.ones((1, 1, 4))}
    with pytest.raises(Exception, match="weights of this LSTM are 144 values, not 5"):
        check_op("cudnn_lstm", {**inputs, "W": np.ones(5)}, size, grad_of=[])


def test_gradients() -> None:
    random = np.random.RandomState(0)
    inputs = {"Input": random.rand(2, 2, 3), "W": random.rand(2 * 4 * 2 * (3 + 2 + 2)) - 0.5}
    inputs |= {"InitH": random.rand(2, 2, 2), "InitC": random.rand(2, 2, 2)}
    check_op("cudnn_lstm", inputs, {"input_size": 3, "hidden_size": 2, "is_bidirec": True})
