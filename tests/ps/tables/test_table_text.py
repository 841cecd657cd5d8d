"""Saved tables in Paddle's text, and exported for other programs."""

import sys

import numpy as np
import pytest
import torch
from test_table_files import IDS, dense, pull_all, push_all, save_all, sparse

from fleetx import cli
from fleetx.checkpoint import FormatError
from fleetx.ps.tables.make_table import create_table
from fleetx.ps.tables.row_rules import EntrySpec, EvictionSpec
from fleetx.ps.tables.table_export import export_table
from fleetx.ps.tables.table_files import save_table
from fleetx.ps.tables.table_spec import InitializerSpec, OptimizerSpec, SparseTableSpec
from fleetx.ps.tables.table_text import read_text, write_text


class TestText:
    # As a server of Paddle 2.0 and one of 2.1 write them.
    META = "param=emb\nshard_id=0\nrow_names=Param,LearningRate\nrow_dims=2,1\ncount=2\n"
    OLD = "5\t0.5,-1.25,0.01,\n18446744073709551615\t1e-05,2,0.01,\n"
    NEW = "5\t7\t0\t1\t0.5,-1.25,0.01,\n6\t2\t3\t0\t0,0,0,\n"

    def write(self, folder, text, meta=META, block=0):
        (folder / "emb_txt").mkdir(exist_ok=True)
        (folder / "emb_txt" / f"emb.block{block}.txt").write_text(text)
        (folder / "emb_txt" / f"emb.block{block}.meta").write_text(meta)

    def test_reads_what_paddle_wrote(self, tmp_path):
        self.write(tmp_path, self.OLD)
        state = read_text(tmp_path, "emb")
        assert state["ids"].tolist() == [5, -1]
        assert state["Param"].tolist() == [[0.5, -1.25], [torch.tensor(1e-05).item(), 2.0]]
        assert "LearningRate" not in state
        table = create_table(SparseTableSpec(name="emb", dim=2))
        table.load_state_dict(state)
        assert table.pull(torch.tensor([5])).tolist() == [[0.5, -1.25]]

    def test_reads_counts_and_who_waits(self, tmp_path):
        self.write(tmp_path, self.NEW)
        entry, eviction = EntrySpec(kind="count", value=4), EvictionSpec(max_unseen=30)
        table = create_table(SparseTableSpec(name="emb", dim=2, entry=entry, eviction=eviction))
        table.load_state_dict(read_text(tmp_path, "emb"))
        state = table.state_dict()
        assert state["ids"].tolist() == [5]
        assert state["score"].tolist() == [7.0]
        assert (state["waiting_ids"].tolist(), state["waiting_counts"].tolist()) == ([6], [2])

    @pytest.mark.parametrize("dtype", ["float32", "float64"])
    def test_what_is_written_is_read_again(self, dtype, tmp_path):
        table = create_table(
            SparseTableSpec(
                name="emb",
                dim=4,
                dtype=dtype,
                initializer=InitializerSpec(kind="normal"),
                optimizer=OptimizerSpec(kind="adam"),
            )
        )
        table.push(IDS, torch.randn(len(IDS), 4, dtype=table.dtype))
        columns = table.columns
        write_text(tmp_path, "emb", table.rows(names=tuple(columns)), columns=columns, blocks=3)
        for number in range(3):
            text = (tmp_path / "emb_txt" / f"emb.block{number}.txt").read_text()
            assert all(int(line.split("\t")[0]) % 3 == number for line in text.splitlines())
        again = create_table(table.spec)
        again.load_state_dict(read_text(tmp_path, "emb", dtype=table.dtype))
        grads = torch.randn(len(IDS), 4, dtype=table.dtype)
        for each in (table, again):
            each.push(IDS, grads)
        assert torch.equal(again.pull(IDS), table.pull(IDS))

    def test_an_empty_table(self, tmp_path):
        write_text(tmp_path, "emb", iter([]), columns={"Param": 4})
        assert read_text(tmp_path, "emb")["Param"].shape == (0, 4)

    @pytest.mark.parametrize(
        ("text", "meta", "said"),
        [
            ("5\t1,2,3,\n", META, "has 1 rows; its .meta says 2"),
            ("5\t1,2,\n6\t1,2,3,\n", META, "line 1: has 2 numbers"),
            ("5 1,2,3,\n6\t1,2,3,\n", META, "line 1: has 1 fields"),
            ("5\t1,2,3,\nx\t1,2,3,\n", META, "line 2"),
            ("5\t1,2,3,\n99999999999999999999\t1,2,3,\n", META, "not a 64-bit id"),
            ("5\t1,2,3,\n6\t1,two,3,\n", META, "line 2"),
            ("5\t1,2,3,\n5\t1,2,3,\n", META, "an id twice"),
            (OLD, "param=emb\n", "lacks 'row_names'"),
            (OLD, META.replace("=2,1", "=2"), "invalid row_names, row_dims or count"),
            (OLD, META.replace("Param", "Moment"), "no 'Param'"),
            (OLD, "nothing\n", "without '='"),
        ],
    )
    def test_damage_is_named(self, text, meta, said, tmp_path):
        self.write(tmp_path, text, meta)
        with pytest.raises(FormatError, match=said):
            read_text(tmp_path, "emb")

    def test_blocks_must_agree(self, tmp_path):
        self.write(tmp_path, "", self.META.replace("count=2", "count=0"))
        self.write(tmp_path, "", self.META.replace("2,1\ncount=2", "3,1\ncount=0"), block=1)
        with pytest.raises(FormatError, match="differ"):
            read_text(tmp_path, "emb")
        with pytest.raises(FileNotFoundError, match="other.block"):
            read_text(tmp_path, "other")

    def test_a_failure_leaves_nothing(self, tmp_path):
        def pieces():
            yield torch.tensor([1]), {"Param": torch.ones(1, 2)}
            raise OSError("the disk is full")

        with pytest.raises(OSError, match="full"):
            write_text(tmp_path, "emb", pieces(), columns={"Param": 2})
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]


class TestExport:
    @pytest.fixture
    def saved(self, tmp_path):
        tables = [create_table(sparse("adagrad")) for _ in range(2)]
        push_all(tables, IDS)
        save_all(tmp_path, tables)
        return tmp_path, pull_all(tables, IDS)

    def test_text(self, saved, capsys):
        folder, rows = saved
        assert cli.main(["ps", "export", str(folder / "emb"), str(folder), "--state"]) == 0
        assert "102 rows" in capsys.readouterr().out
        table = create_table(sparse("adagrad"))
        table.load_state_dict(read_text(folder, "emb"))
        assert torch.equal(table.pull(IDS), rows)
        assert table.state_dict()["Moment"].abs().sum() > 0

    @pytest.mark.parametrize("format", ["npz", "parquet"])
    def test_files(self, format, saved):
        folder, rows = saved
        target = folder / f"emb.{format}"
        arguments = ["ps", "export", str(folder / "emb"), str(target), "--format", format]
        assert cli.main(arguments) == 0
        if format == "npz":
            found = np.load(target)
            ids, values = found["ids"], found["Param"]
            assert set(found) == {"ids", "Param"}
        else:
            parquet = pytest.importorskip("pyarrow.parquet")
            found = parquet.read_table(target)
            assert found.column_names == ["id", "Param"]
            ids, values = found["id"].to_numpy(), np.array(found["Param"].to_pylist())
        order = torch.from_numpy(ids).argsort()
        assert torch.equal(torch.from_numpy(ids)[order], IDS.sort().values)
        expected = rows[IDS.argsort()]
        assert torch.equal(torch.from_numpy(values.astype(np.float32))[order], expected)

    def test_without_pyarrow(self, saved, monkeypatch, capsys):
        folder, _ = saved
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        target = folder / "emb.parquet"
        arguments = ["ps", "export", str(folder / "emb"), str(target), "--format", "parquet"]
        assert cli.main(arguments) == 1
        assert "pip install 'fleetx[parquet]'" in capsys.readouterr().err
        assert not target.exists()

    def test_errors_are_one_sentence(self, tmp_path, capsys):
        assert cli.main(["ps", "export", str(tmp_path), str(tmp_path / "out")]) == 1
        assert "there is no saved table in" in capsys.readouterr().err
        (table,), _ = dense(1)
        save_table(tmp_path, table)
        assert cli.main(["ps", "export", str(tmp_path / "net"), str(tmp_path / "out")]) == 1
        assert "write it as npz" in capsys.readouterr().err
        with pytest.raises(SystemExit):
            cli.main(["ps", "export", "a", "b", "--blocks", "0"])
        with pytest.raises(ValueError, match="'word' is not known"):
            export_table(tmp_path / "net", tmp_path / "x", format="word")
