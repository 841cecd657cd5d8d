"""A served model whose rows stay on the servers of a running job, which it may only read."""

from __future__ import annotations

import dataclasses
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from serving_process import serving
from torch import nn

import fleetx
from fleetx.checkpoint.file_errors import FormatError
from fleetx.cli import main
from fleetx.ps.client.client import Client, ClientSettings
from fleetx.ps.client.row_reader import RowReader, ServerPlaces
from fleetx.ps.server.snapshots import Durability
from fleetx.ps.tables.table_spec import OptimizerSpec, SparseTableSpec
from fleetx.ps.wire.security import make_keys
from fleetx.runtime.server_support import write_keys
from fleetx.serving.model import load_model
from fleetx.serving.table_options import TableOptions
from waiting import wait_until

sys.path.append(str(Path(__file__).parents[1] / "ps"))
from processes import servers

DIM = 8
IDS = torch.arange(20) * 1000


class Scores(nn.Module):
    """A score per id."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.rows = fleetx.SparseEmbedding("user", DIM)
        self.head = nn.Linear(DIM, 1)

    def forward(self, user: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"score": self.head(self.rows(user)).squeeze(-1)}


def export(folder: Path, tables: Path | None = None) -> nn.Module:
    model = Scores()
    fleetx.save_recommender(model, folder, (IDS[:2],), tables=tables)
    return model.head


@pytest.mark.slow
def test_answers_follow_the_rows_on_servers(tmp_path: Path) -> None:
    keys = make_keys()
    write_keys(tmp_path / "reader.keys", dataclasses.asdict(keys.for_readers()))
    head = export(tmp_path / "models" / "1")
    spec = SparseTableSpec(name="user", dim=DIM, optimizer=OptimizerSpec(kind="sgd", rate=1.0))
    durable = lambda index: Durability(folder=tmp_path / f"server{index}")  # noqa: E731
    with servers(2, keys=keys, durability=durable) as (endpoints, running):
        client = Client(endpoints, settings=ClientSettings(keys=keys.for_workers()))
        with closing(client):
            client.create(spec)
            client.push_sparse("user", IDS, torch.randn(len(IDS), DIM))

            def expected() -> np.ndarray:
                with torch.no_grad():
                    return head(client.pull_sparse("user", IDS)).squeeze(-1).numpy()

            arguments = ["--servers", ",".join(endpoints), "--row_age_seconds", "0.05"]
            arguments += ["--reader_keys", tmp_path / "reader.keys", "--row_seconds", "0.5"]
            with serving(tmp_path / "models", "--watch", *arguments) as server:

                def answer(ids: Any = IDS) -> np.ndarray:
                    # On a busy machine rows may not come within their time.
                    ask = lambda: server.predict({"user": ids})  # noqa: E731
                    found = wait_until(lambda: (a := ask()).status != 503 and a, "an answer")
                    assert found.status == 200, found.body
                    return np.array(found.json()["outputs"]["score"])

                first = answer()
                assert np.allclose(first, expected(), atol=1e-5)
                # An id that has no row reads as the default row, and gets none by that.
                assert np.allclose(answer([77]), head.bias.item(), atol=1e-6)
                # The job trains on: a row is kept for its age at most.
                client.push_sparse("user", IDS, torch.ones(len(IDS), DIM))
                assert not np.allclose(first, expected(), atol=1e-5)
                wait_until(lambda: np.allclose(answer(), expected(), atol=1e-5), "the new rows")
                running[1].kill()
                wait_until(lambda: server.predict({"user": IDS}).status == 503, "an error")
                down = server.predict({"user": IDS})
                assert f"server 1 at {endpoints[1]} has not replied" in down.json()["error"]
                assert down.headers["Retry-After"] == "1"
                running[1].start()
                assert np.allclose(answer(), expected(), atol=1e-5)
                assert server.stop() == 0


def test_a_model_without_its_rows_needs_servers(tmp_path: Path) -> None:
    export(tmp_path / "1")
    with pytest.raises(FormatError, match="'user', which are not beside it: pass the servers"):
        load_model(tmp_path / "1")
    down = RowReader(ServerPlaces(["127.0.0.1:9"]), None, seconds=0.05)
    with closing(down), pytest.raises(ConnectionError, match="server 0 at 127.0.0.1:9 has not"):
        load_model(tmp_path / "1", tables=TableOptions(reader=down))


def test_hot_rows_of_a_mapped_table_are_those_of_the_file(tmp_path: Path) -> None:
    from fleetx.ps.tables.table_files import SERVERS, finish_save, save_part

    rows = torch.randn(len(IDS), DIM)
    spec = SparseTableSpec(name="user", dim=DIM)
    folder = tmp_path / "saved" / SERVERS
    save_part(folder, spec, {"ids": IDS, "Param": rows}, server=0, servers=1, token="a1")
    finish_save(folder, "user", servers=1, token="a1")
    export(tmp_path / "1", tmp_path / "saved")
    plain = load_model(tmp_path / "1")
    cached = load_model(tmp_path / "1", tables=TableOptions(cache_bytes=300))  # some rows
    for ids in (IDS, IDS[:3], IDS, torch.tensor([5, 0, 5])):
        given = {"user": ids.numpy()}
        assert np.array_equal(cached.run(given)["score"], plain.run(given)["score"])
    reader = RowReader(ServerPlaces(["127.0.0.1:9"]), None, seconds=0.05)
    with closing(reader), pytest.raises(FormatError, match="none are read from --servers"):
        load_model(tmp_path / "1", tables=TableOptions(reader=reader))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--servers", "a:1"], "--servers a:1: needs --reader_keys"),
        (["--servers", "nowhere", "--server_insecure"], "neither the folder of a running job"),
        (["--server_insecure"], "is for rows on parameter servers"),
        (["--servers", "a:1", "--reader_keys", "missing"], "cannot be read"),
    ],
)
def test_options_that_cannot_act(
    options: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path), "--port", "0", *options]) == 1
    assert problem in " ".join(capsys.readouterr().err.split())
