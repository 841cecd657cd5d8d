"""Weights of ready-made models: every kind of file that they load from, and what does not fit."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

import fleetx as X
from fleetx import static
from fleetx.checkpoint.file_errors import FormatError
from fleetx.checkpoint.paddle_tensor import write_tensor
from fleetx.checkpoint.pickle_writer import dump_object
from fleetx.static.io import load_params, save_persistables

TINY = {"class_dim": 7, "image_size": 32, "width": 4, "depth": 18}


def make(**sizes):
    model = X.applications.Resnet50(**{**TINY, **sizes})
    exe = static.Executor(static.CPUPlace())
    exe.run(model.startup_prog)
    return model, exe


def shuffled(model):
    """Give the model other weights and return the old ones."""
    state = model.module_state()
    model.load_module_state({key: torch.rand_like(value) for key, value in state.items()})
    return state


def write_variables(model, folder, exe):
    model.save_params(folder)


def write_combined(model, folder, exe):
    static.io.save_params(exe, folder, model.main_prog, filename="__params__")
    return folder / "__params__"


def write_persistables(model, folder, exe):
    save_persistables(exe, folder, model.main_prog)


def write_state_of_paddle(model, folder, exe):
    arrays = {
        w.place: (model.module_state()[key].t() if w.transposed else model.module_state()[key])
        .contiguous()
        .numpy()
        for key, w in model.weights.items()
    }
    folder.mkdir()
    with (folder / "resnet.pdparams").open("wb") as stream:
        dump_object(stream, arrays)


def write_prefix(model, folder, exe):
    write_state_of_paddle(model, folder, exe)
    return folder / "resnet"


def write_program_state(model, folder, exe):
    static.io.save(model.main_prog, folder / "m")
    return folder / "m.pdparams"


def write_module(model, folder, exe):
    folder.mkdir()
    save_file(model.to_module().state_dict(), folder / "model.safetensors")


def write_in_parts(model, folder, exe):
    folder.mkdir()
    state = model.module_state()
    keys = sorted(state)
    save_file({k: state[k] for k in keys[:50]}, folder / "model-1.safetensors")
    save_file({k: state[k] for k in keys[50:]}, folder / "model-2.safetensors")


def write_own_file(model, folder, exe):
    model.save_params(f"{folder}.safetensors")
    return f"{folder}.safetensors"


def write_halves(model, folder, exe):
    folder.mkdir()
    state = {k: v.to(torch.float64) for k, v in model.module_state().items()}
    save_file(state, folder / "model.safetensors")


def write_names_of_paddle_1(model, folder, exe):
    folder.mkdir()
    values = {w.variable.name: w for w in model.weights.values()}
    assert len(values) == len(model.weights)
    for old, key in model.other_names().items():
        value = model.module_state()[key]
        value = value.t().contiguous() if model.weights[key].transposed else value
        with (folder / old).open("wb") as stream:
            write_tensor(stream, value.numpy())


@pytest.mark.parametrize(
    "write",
    [
        write_variables,
        write_combined,
        write_persistables,
        write_state_of_paddle,
        write_prefix,
        write_program_state,
        write_module,
        write_in_parts,
        write_own_file,
        write_halves,
        write_names_of_paddle_1,
    ],
)
def test_weights_come_back_from(write, tmp_path):
    model, exe = make()
    path = write(model, tmp_path / "weights", exe) or tmp_path / "weights"
    wanted = shuffled(model)
    model.load_params(path)
    for key, value in model.module_state().items():
        assert torch.equal(value, wanted[key]), key


def test_names_of_paddle_1_are_those_of_its_published_weights():
    model, _ = make(depth=101)
    names = model.other_names()
    assert names["res2a_branch1_weights"] == "layer1.0.downsample.0.weight"
    assert names["bn4b22_branch2c_variance"] == "layer3.22.bn3.running_var"
    assert names["bn_conv1_offset"] == "bn1.bias"
    assert len(names) == len(model.weights)


def test_paddle_reads_what_is_saved(tmp_path):
    model, exe = make()
    model.save_params(tmp_path / "p")
    wanted = shuffled(model)
    load_params(exe, tmp_path / "p", model.main_prog)
    assert all(torch.equal(v, wanted[k]) for k, v in model.module_state().items())


def test_training_does_not_write_into_a_module_whose_weights_were_taken():
    model, exe = make()
    module = model.to_module()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    static.optimizer.SGD(0.1).minimize(model.loss)
    exe.run(model.startup_prog)
    model.load_module_state(module.state_dict())
    feed = {"feed_image": torch.randn(2, 3, 32, 32), "feed_label": torch.zeros(2, 1).long()}
    exe.run(model.main_prog, feed={k: v.numpy() for k, v in feed.items()}, fetch_list=[model.loss])
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())


def test_other_classes_leave_the_last_layer_out(tmp_path):
    model, _ = make(class_dim=9)
    model.save_params(tmp_path / "nine.safetensors")
    nine = model.module_state()
    model, _ = make()
    old = model.module_state()
    with pytest.raises(ValueError, match=r"shape: .*fc.weight \(is \[9, 32\], must be \[7, 32"):
        model.load_params(tmp_path / "nine.safetensors")
    model.load_params(tmp_path / "nine.safetensors", leave_out=["fc."])
    state = model.module_state()
    assert torch.equal(state["fc.bias"], old["fc.bias"])
    assert torch.equal(state["layer4.1.bn2.weight"], nine["layer4.1.bn2.weight"])


def test_all_that_does_not_fit_is_named_and_nothing_changes(tmp_path):
    model, _ = make()
    state = model.module_state()
    state["fc.wait"] = state.pop("fc.weight")
    state["bn1.bias"] = torch.zeros(5)
    save_file(state, tmp_path / "w.safetensors")
    before = shuffled(model)
    before = model.module_state()
    with pytest.raises(ValueError, match="do not match Resnet50") as caught:
        model.load_params(tmp_path / "w.safetensors")
    text = str(caught.value)
    assert str(tmp_path / "w.safetensors") in text
    assert "missing: fc.weight; unknown: fc.wait; wrong shape: bn1.bias (is [5], must be" in text
    assert all(torch.equal(v, before[k]) for k, v in model.module_state().items())


def test_files_that_hold_no_weights(tmp_path):
    model, _ = make()
    with pytest.raises(FileNotFoundError, match="no weights at .*nowhere"):
        model.load_params(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="neither .*safetensors.* such as conv2d_0.w_0"):
        model.load_params(tmp_path / "empty")
    (tmp_path / "model.pth").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"model.pth .* safetensors.torch.save_file"):
        model.load_params(tmp_path / "model.pth")
    (tmp_path / "cut.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{")
    with pytest.raises(FormatError, match="cut.safetensors"):
        model.load_params(tmp_path / "cut.safetensors")
    model.save_params(tmp_path / "two")
    one = tmp_path / "two" / "conv2d_3.w_0"
    one.write_bytes(one.read_bytes()[:-3])
    with pytest.raises(FormatError, match="conv2d_3.w_0"):
        model.load_params(tmp_path / "two")
    one.unlink()
    with pytest.raises(ValueError, match=r"missing: layer1.\d.conv\d.weight"):
        model.load_params(tmp_path / "two")


def test_weights_need_the_startup_program(tmp_path):
    model = X.applications.Resnet50(**TINY)
    with pytest.raises(RuntimeError, match="run the startup program"):
        model.to_module()
