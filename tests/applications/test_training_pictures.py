"""Ready-made models train on an ImageNet folder with two workers, by the documents' programs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pictures import fleetrun, results, write_folder

pytestmark = pytest.mark.slow  # starts jobs or servers

PROGRAM = Path(__file__).parent / "train_pictures.py"
COST = re.compile(r"^worker_index: (\d), step(\d+) cost = (\d+\.\d+), speed: (\d+\.\d+)$", re.M)
TINY = {"class_dim": 3, "image_size": 32, "width": 4}


@pytest.mark.parametrize(
    ("model", "sizes", "loader", "switches"),
    [
        ("Resnet50", {**TINY, "depth": 18}, "new", ("amp", "recompute", "lars")),
        ("Resnet50", {**TINY, "depth": 18, "data_layout": "NHWC"}, "old", ("localsgd",)),
        ("VGG16", {**TINY, "depth": 11, "hidden": 8}, "new", ("recompute",)),
    ],
)
def test_the_documents_program_trains(model, sizes, loader, switches, tmp_path):
    data = write_folder(tmp_path / "ImageNet", train=19)
    sizes = json.dumps(sizes)
    arguments = ["--model", model, "--sizes", sizes, "--loader", loader, "--switches", *switches]
    printed = fleetrun(tmp_path, PROGRAM, data, *arguments)
    # 19 images are 10 per worker, one of them twice: two full batches and one of two.
    for rank, text in enumerate(printed):
        found = [(int(r), int(step)) for r, step, _, _ in COST.findall(text)]
        assert found == [(rank, step) for step in range(3)]
    first, second = results(tmp_path)
    assert first["costs"] != second["costs"]
    # Workers have the same weights, but statistics of their own, and with LocalSGD weights too.
    same = {k for k in first["sums"] if "running" not in k and "localsgd" not in switches}
    assert {k: first["sums"][k] for k in same} == {k: second["sums"][k] for k in same}
    names = " ".join(first["applied"]).lower()
    assert all(switch in names for switch in switches)
