"""A recommender is saved alone or with servers, served with mapped tables, and taken over."""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from serving_process import serving
from torch import nn

import fleetx
from fleetx import cli, fleet
from fleetx.serving.model import load_model
from waiting import wait_until

pytestmark = pytest.mark.usefixtures("fresh_fleet")

USERS, ITEMS = torch.arange(0, 40), torch.arange(40, 80)


class TwoTowers(nn.Module):
    """A score for a user and an item."""

    def __init__(self) -> None:
        super().__init__()
        self.user = fleetx.SparseEmbedding("user", 8)
        self.item = fleetx.SparseEmbedding("item", 8)
        self.head = nn.Linear(8, 8)

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> dict[str, torch.Tensor]:
        raw = (self.head(self.user(user)) * self.item(item)).sum(-1)
        return {"prob": raw.sigmoid(), "raw": raw}


def start() -> tuple[Any, Any]:
    fleet.init()
    model = fleet.distributed_model(TwoTowers())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    return model, fleet.distributed_optimizer(optimizer)


def train(model: Any, optimizer: Any, steps: int = 3) -> dict[str, torch.Tensor]:
    for _ in range(steps):
        (model(USERS, ITEMS)["prob"] - 1).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        found: dict[str, torch.Tensor] = model(USERS, ITEMS)
    return found


def test_a_script_that_runs_alone_saves_and_loads(tmp_path: Path) -> None:
    fleet.init()
    fleet.distributed_model(TwoTowers())
    with pytest.raises(RuntimeError, match="there is nothing to save yet"):
        fleet.save_persistables(None, str(tmp_path / "empty"))
    model, optimizer = start()
    before = train(model, optimizer)
    fleet.save_persistables(None, str(tmp_path / "saved"))
    after = train(model, optimizer)
    assert not torch.equal(before["raw"], after["raw"])
    fleet.load_model(str(tmp_path / "saved"))
    with torch.no_grad():
        assert torch.equal(model(USERS, ITEMS)["raw"], before["raw"])
    # Rows come with their optimizer's state; torch's own state of the head is not in the save.
    frozen = TwoTowers()
    frozen.load_state_dict(model.state_dict())
    fleetx.freeze_embeddings(frozen, tmp_path / "saved")
    assert torch.allclose(frozen(USERS, ITEMS)["raw"], before["raw"])


def test_a_save_of_another_model_is_refused(tmp_path: Path) -> None:
    model, optimizer = start()
    train(model, optimizer, 1)
    fleet.save_persistables(None, str(tmp_path / "saved"))
    fleet.init()
    other = nn.Sequential(fleetx.SparseEmbedding("user", 8), nn.Linear(8, 1))
    other = fleet.distributed_model(other)
    fleet.distributed_optimizer(torch.optim.SGD(other.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="holds the parameters of another model"):
        fleet.load_model(str(tmp_path / "saved"))


def test_a_model_is_exported_as_fleet_returned_it(tmp_path: Path) -> None:
    model, optimizer = start()
    expected = train(model, optimizer, 1)["raw"].numpy()
    fleet.save_persistables(None, str(tmp_path / "saved"))
    example = (USERS[:2], ITEMS[:2])
    fleetx.save_recommender(model, tmp_path / "1", example, tables=tmp_path / "saved")
    served = load_model(tmp_path / "1")
    inputs = {"user": USERS.numpy(), "item": ITEMS.numpy()}
    assert np.allclose(served.run(inputs)["raw"], expected, atol=1e-5)
    with pytest.raises(
        TypeError, match=r"takes the sequence of the model's inputs: write \(tensor"
    ):
        fleetx.save_recommender(model, tmp_path / "2", USERS, tables=tmp_path / "saved")


@pytest.mark.slow
def test_served_with_mapped_tables_and_taken_over(tmp_path: Path) -> None:
    model, optimizer = start()
    answers, example = {}, (USERS[:2], ITEMS[:2])
    for version in ("1", "2"):
        answers[version] = train(model, optimizer)["raw"].numpy()
        fleet.save_persistables(None, str(tmp_path / "saved" / version))
    fleetx.save_recommender(
        model.module, tmp_path / "models" / "1", example, tables=tmp_path / "saved" / "1"
    )
    with pytest.raises(FileExistsError, match="save every recommender to a new folder"):
        fleetx.save_recommender(model.module, tmp_path / "models" / "1", example, tables=tmp_path)
    # The head of version 1 is that of version 2, as it was exported after both trainings.
    expected = {}
    for version in answers:
        frozen = TwoTowers()
        frozen.load_state_dict(model.state_dict())
        fleetx.freeze_embeddings(frozen, tmp_path / "saved" / version)
        expected[version] = frozen(USERS, ITEMS)["raw"].detach().numpy()

    loaded = load_model(tmp_path / "models" / "1")
    assert [spec.name for spec in loaded.inputs] == ["user", "item"]
    assert [spec.name for spec in loaded.outputs] == ["prob", "raw"]
    inputs = {"user": USERS.numpy(), "item": ITEMS.numpy()}
    assert np.allclose(loaded.run(inputs)["raw"], expected["1"], atol=1e-5)

    small = {"user": USERS[:20].numpy(), "item": ITEMS[:20].numpy()}
    failures: list[Any] = []
    told = (tmp_path / "said").open("w")
    watch = ("--watch", "--watch_seconds", "0.05")
    with told, serving(tmp_path / "models", *watch, stderr=told) as server:
        first = server.predict(small)
        assert first.status == 200
        assert np.allclose(first.json()["outputs"]["raw"], expected["1"][:20], atol=1e-5)
        done = threading.Event()

        def ask() -> None:
            while not done.is_set():
                found = server.predict(small)
                version = found.headers["X-Model-Version"]
                wanted = "1" if version == first.headers["X-Model-Version"] else "2"
                values = found.json().get("outputs", {}).get("raw")
                if found.status != 200 or not np.allclose(values, expected[wanted][:20], atol=1e-5):
                    failures.append((found.status, found.body))

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            # One that cannot be loaded is left out, until its files are complete.
            fleetx.save_recommender(
                model.module, tmp_path / "new", example, tables=tmp_path / "saved" / "2"
            )
            copied = tmp_path / "models" / "3"
            shutil.copytree(tmp_path / "new" / "tables", copied / "tables")
            (copied / "model.pt2").write_bytes(b"no model")
            said = tmp_path / "said"
            wait_until(lambda: "the old version stays" in said.read_text(), "a refusal")
            shutil.copy(tmp_path / "new" / "model.pt2", copied / "model.pt2")
            old = first.headers["X-Model-Version"]
            wait_until(
                lambda: server.ask("GET", "/v1/model").json()["version"] != old, "the new version"
            )
        finally:
            done.set()
            asking.join()
        last = server.predict(small)
        assert np.allclose(last.json()["outputs"]["raw"], expected["2"][:20], atol=1e-5)
        assert last.json()["model"]["version"] == last.headers["X-Model-Version"] != old
    assert not failures


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--watch_seconds", "5"], "--watch_seconds 5: says how often --watch looks"),
        (["--row_age_seconds", "0"], "--row_age_seconds: is for rows on parameter servers"),
        (["--server_insecure"], "--server_insecure: is for rows on parameter servers"),
        ([], "there is no model in .*--watch serves the newest of its versions"),
    ],
)
def test_options_that_cannot_act_are_refused(
    options: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "1").mkdir()
    assert cli.main(["serve", str(tmp_path), "--port", "0", *options]) == 1
    assert re.search(reason, " ".join(capsys.readouterr().err.split()))


def test_a_folder_without_versions_is_refused(tmp_path: Path) -> None:
    from fleetx.serving.versions import newest_version

    (tmp_path / "latest").mkdir()
    with pytest.raises(FileNotFoundError, match="--watch serves the highest numbered version"):
        newest_version(tmp_path)
    for name in ("9", "10", "10x"):
        (tmp_path / name).mkdir()
    assert newest_version(tmp_path).name == "10"


def test_a_version_with_other_inputs_is_refused(tmp_path: Path) -> None:
    from fleetx.serving.versions import Versions

    def export(name: str, module: nn.Module) -> Path:
        shapes = ({0: torch.export.Dim("rows")},)
        program = torch.export.export(module, (torch.ones(2, 3),), dynamic_shapes=shapes)
        (tmp_path / name).mkdir()
        torch.export.save(program, tmp_path / name / "model.pt2")
        return tmp_path / name

    old = load_model(export("1", nn.Linear(3, 1)))
    versions = Versions(tmp_path, load_model, 1.0)
    path = export("2", nn.Linear(3, 2))
    with pytest.raises(ValueError, match="has other outputs than the served model"):
        versions._tried(path, old)
