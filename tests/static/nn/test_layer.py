"""The base class of layers, and the containers."""

from __future__ import annotations

import numpy as np
import pytest
from run_program import Built

from fleetx import static
from fleetx.static import nn

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _fresh_program():
    with static.program_guard(static.Program(), static.Program()), static.unique_name.guard():
        yield


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1D(4)
        self.tail = nn.Sequential(nn.ReLU(), nn.Linear(4, 2, bias_attr=False))
        self.scale = self.create_parameter([1])

    def forward(self, x):
        return self.tail(self.norm(self.first(x)))


def test_parameters_are_found_by_place_and_named_after_layers():
    net = Net()
    named = {place: p.name for place, p in net.named_parameters()}
    assert named == {
        "scale": "net_0.w_0",
        "first.weight": "linear_0.w_0",
        "first.bias": "linear_0.b_0",
        "norm.weight": "batch_norm1d_0.w_0",
        "norm.bias": "batch_norm1d_0.b_0",
        "norm._mean": "batch_norm1d_0.w_1",
        "norm._variance": "batch_norm1d_0.w_2",
        "tail.1.weight": "linear_1.w_0",
    }
    assert len(net.parameters(include_sublayers=False)) == 1
    assert set(net.state_dict()) == set(named)
    assert list(net.state_dict(include_sublayers=False)) == ["scale"]
    assert net.full_name() == "net_0"


def test_sublayers():
    net = Net()
    places = [place for place, _ in net.named_sublayers()]
    assert places == ["first", "norm", "tail", "tail.0", "tail.1"]
    assert [type(c).__name__ for c in net.children()] == ["Linear", "BatchNorm1D", "Sequential"]
    assert net.sublayers(include_self=True)[0] is net
    seen = []
    net.apply(lambda layer: seen.append(type(layer).__name__))
    assert seen[-1] == "Net"
    assert len(seen) == 6
    assert "in_features=3" in repr(net)


def test_train_and_eval_reach_all_layers():
    net = Net()
    assert net.eval() is net
    assert not any(layer.training for layer in net.sublayers(include_self=True))
    net.train()
    assert net.norm.training


def test_attributes_move_between_groups():
    layer = nn.Layer()
    layer.part = nn.Linear(2, 2)
    layer.part = None
    assert layer.part is None
    assert layer.parameters() == []
    layer.part = layer.create_parameter([2])
    assert len(layer.parameters()) == 1
    layer.part = 3
    assert layer.part == 3
    assert layer.parameters() == []
    buffer = layer.create_tensor(persistable=True)
    layer.register_buffer("kept", buffer)
    layer.register_buffer("passing", layer.create_tensor(), persistable=False)
    assert [n for n, _ in layer.named_buffers()] == ["kept", "passing"]
    assert list(layer.state_dict()) == ["kept"]
    del layer.kept
    with pytest.raises(AttributeError, match="kept"):
        _ = layer.kept


def test_parts_before_init_and_wrong_parts_are_refused():
    class Hasty(nn.Layer):
        def __init__(self):
            self.part = nn.Linear(2, 2)

    with pytest.raises(ValueError, match="super"):
        Hasty()
    layer = nn.Layer()
    with pytest.raises(TypeError, match="Layer"):
        layer.add_sublayer("x", 3)
    with pytest.raises(TypeError, match="Parameter"):
        layer.add_parameter("x", 3)
    with pytest.raises(TypeError, match="Variable"):
        layer.register_buffer("x", 3)
    with pytest.raises(NotImplementedError, match="Layer"):
        layer(1)


def test_hooks_change_inputs_and_outputs():
    layer = nn.Identity()
    before = layer.register_forward_pre_hook(lambda _, inputs: (inputs[0] + 1,))
    after = layer.register_forward_post_hook(lambda _, inputs, outputs: outputs * 10)
    assert layer(2) == 30
    before.remove()
    assert layer(2) == 20
    after.remove()
    assert layer(2) == 2


def test_set_state_dict_sets_values_in_the_scope():
    built = Built(lambda x: Net()(x), {"x": RNG.standard_normal((5, 3)).astype("float32")})
    with static.program_guard(static.Program(), static.Program()), static.unique_name.guard():
        net = Net()
    values = {
        k: RNG.uniform(0.5, 1, v.shape).astype("float32") for k, v in net.state_dict().items()
    }
    values.pop("scale")
    with static.scope_guard(built.scope):
        missing, unexpected = net.set_state_dict({**values, "other": np.zeros(1)})
    assert missing == ["scale"]
    assert unexpected == ["other"]
    np.testing.assert_array_equal(built.get("linear_0.w_0"), values["first.weight"])
    with pytest.raises(ValueError, match=r"first\.weight"):
        net.set_state_dict({"first.weight": np.zeros((1, 1))})
    by_name = {"linear_0.w_0": np.zeros((3, 4), "float32")}
    with static.scope_guard(built.scope):
        net.set_state_dict(by_name, use_structured_name=False)
    assert not built.get("linear_0.w_0").any()


def test_sequential():
    parts = [nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)]
    net = nn.Sequential(*parts)
    assert len(net) == 3
    assert net[0] is parts[0]
    assert net[-1] is parts[2]
    assert list(net[1:]._sub_layers.values()) == parts[1:]
    with pytest.raises(IndexError, match="3"):
        net[3]
    named = nn.Sequential(("a", parts[0]), ("b", parts[1]))
    assert named["b"] is parts[1]
    named["c"] = parts[2]
    del named["a"]
    assert list(named._sub_layers) == ["b", "c"]


def test_layer_list():
    layers = nn.LayerList([nn.Linear(1, 1) for _ in range(3)])
    extra = nn.Linear(1, 1)
    layers.append(extra)
    layers.insert(0, nn.ReLU())
    assert len(layers) == 5
    assert layers[-1] is extra
    assert [place for place, _ in layers.named_parameters()][0] == "1.weight"
    del layers[0]
    assert len(layers[1:3]) == 2
    layers[0] = extra
    assert layers[0] is extra
    assert sum(1 for _ in layers) == 4


def test_layer_dict_and_parameter_list():
    layers = nn.LayerDict({"a": nn.ReLU()})
    layers["b"] = nn.Linear(1, 1)
    assert "b" in layers
    assert list(layers.keys()) == list(layers) == ["a", "b"]
    assert len(list(layers.items())) == len(list(layers.values())) == 2
    layers.pop("a")
    assert len(layers) == 1
    layers.clear()
    assert len(layers) == 0
    owner = nn.Layer()
    parameters = nn.ParameterList([owner.create_parameter([i + 1]) for i in range(2)])
    parameters.append(owner.create_parameter([5]))
    assert [p.shape[0] for p in parameters] == [1, 2, 5]
    assert parameters[-1].shape == (5,)
    parameters[0] = parameters[2]
    assert len(parameters.parameters()) == 2


def test_parameters_have_the_default_type():
    static.tensor.common.set_default_dtype("float64")
    try:
        layers = [nn.Linear(3, 4), nn.Conv2D(3, 2, 1), nn.BatchNorm2D(3), nn.Embedding(5, 2)]
    finally:
        static.tensor.common.set_default_dtype("float32")
    wide = {p.dtype for layer in layers for p in layer.parameters()}
    assert wide == {static.VarType.FP64}
    assert nn.Linear(3, 4).weight.dtype == static.VarType.FP32
