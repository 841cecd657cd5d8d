"""Weights for other programs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from fleetx import fleet


def test_a_file_has_the_names_of_the_plain_module(tmp_path: Path, fresh_fleet: None) -> None:
    fleet.init(is_collective=True)
    first = nn.Linear(3, 3)
    model = nn.Sequential(first, nn.BatchNorm1d(3), first)  # two names for one weight
    wrapped = fleet.distributed_model(model)
    fleet.save_weights(tmp_path / "net.safetensors", wrapped)
    found = load_file(tmp_path / "net.safetensors")
    expected = model.state_dict()
    assert set(found) == set(expected)
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_other_targets_are_refused(tmp_path: Path, fresh_fleet: None) -> None:
    fleet.init(is_collective=True)
    with pytest.raises(ValueError, match="Linear has no save_pretrained"):
        fleet.save_weights(tmp_path / "folder", nn.Linear(2, 2))
    assert not (tmp_path / "folder").exists()


@pytest.mark.slow  # imports transformers
def test_a_model_of_hugging_face_is_a_folder(tmp_path: Path, fresh_fleet: None) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=8,
    )  # fmt: skip
    fleet.init(is_collective=True)
    model = fleet.distributed_model(transformers.BertModel(config))
    fleet.save_weights(tmp_path / "bert", model)
    again = transformers.BertModel.from_pretrained(tmp_path / "bert")
    for name, value in model.module.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
