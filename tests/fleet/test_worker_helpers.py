"""Shares of files, metrics of one worker, file systems, numbered checkpoints of programs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fleetx import static
from fleetx.checkpoint.file_system import FSFileExistsError, FSFileNotExistsError, LocalFS
from fleetx.fleet import metrics
from fleetx.fleet.roles.user_defined_role_maker import UserDefinedCollectiveRoleMaker
from fleetx.fleet.saving import program_checkpoints
from fleetx.fleet.utilities import UtilBase, split_files

ALONE = UtilBase(UserDefinedCollectiveRoleMaker(0, ["127.0.0.1:6170"]))


@pytest.mark.parametrize(
    ("files", "count", "shares"),
    [
        (list("abcde"), 2, [list("abc"), list("de")]),
        (list("ab"), 3, [["a"], ["b"], []]),
        ([], 2, [[], []]),
        (list("abcd"), 1, [list("abcd")]),
    ],
)
def test_shares_of_files(files: list[str], count: int, shares: list[list[str]]) -> None:
    assert [split_files(files, i, count) for i in range(count)] == shares


def test_shares_need_a_list_and_a_session() -> None:
    with pytest.raises(TypeError, match="should be a list"):
        split_files("abc", 0, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no share 2 of 2"):
        split_files([], 2, 2)
    with pytest.raises(RuntimeError, match=r"fleet\.init"):
        UtilBase().barrier()


def test_area_under_the_curve_is_that_of_all_pairs() -> None:
    random = np.random.default_rng(3)
    positives, negatives = random.integers(0, 5, (2, 1, 20))
    pairs = [(p, n, positives[0, p] * negatives[0, n]) for p in range(20) for n in range(20)]
    right = sum(w * ((p > n) + 0.5 * (p == n)) for p, n, w in pairs)
    expected = right / sum(w for _, _, w in pairs)
    assert metrics.auc(positives, negatives, util=ALONE) == pytest.approx(expected)
    assert metrics.auc(positives * 0, negatives, util=ALONE) == 0.5


def test_metrics_of_variables_in_a_scope() -> None:
    scope = static.Scope()
    scope.var("errors").get_tensor().set(np.array([[6.0]]))
    scope.var("count").get_tensor().set(np.array([4]))
    assert metrics.mae("errors", "count", scope, ALONE) == 1.5
    assert metrics.mse("errors", 3, scope, ALONE) == 2.0
    assert metrics.max("errors", scope, ALONE).tolist() == [[6.0]]
    assert metrics.min(np.array([1, 2]), util=ALONE).tolist() == [1, 2]
    with pytest.raises(ValueError, match="no variable 'nothing'"):
        metrics.sum("nothing", scope, ALONE)
    with pytest.raises(ValueError, match="no worker has counted"):
        metrics.acc(np.zeros(1), np.zeros(1), util=ALONE)


def test_local_file_system(tmp_path: Path) -> None:
    fs, folder = LocalFS(), str(tmp_path / "a" / "b")
    assert fs.ls_dir(folder) == ([], [])
    fs.mkdirs(folder)
    fs.touch(f"{folder}/file")
    fs.mkdir(f"{folder}/inner")
    assert fs.ls_dir(folder) == (["inner"], ["file"])
    assert fs.list_dirs(folder) == ["inner"]
    fs.upload(folder, str(tmp_path / "copy"))
    assert fs.ls_dir(str(tmp_path / "copy")) == (["inner"], ["file"])
    with pytest.raises(FSFileExistsError):
        fs.mv(folder, str(tmp_path / "copy"))
    fs.mv(folder, str(tmp_path / "copy"), overwrite=True)
    with pytest.raises(FSFileNotExistsError):
        fs.mv(folder, str(tmp_path / "d"))
    with pytest.raises(FSFileExistsError):
        fs.touch(str(tmp_path / "copy" / "file"), exist_ok=False)
    with pytest.raises(AssertionError, match="already a file"):
        fs.mkdirs(str(tmp_path / "copy" / "file"))
    fs.delete(str(tmp_path / "copy"))
    fs.delete(str(tmp_path / "copy"))
    assert not fs.stat(str(tmp_path / "copy"))
    assert not fs.need_upload_download()


class RemoteFS(LocalFS):
    """A folder that stands for another machine's."""

    def need_upload_download(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [LocalFS, RemoteFS])
def test_numbered_checkpoints(kind: type[LocalFS], tmp_path: Path) -> None:
    main, startup, scope = static.Program(), static.Program(), static.Scope()
    executor = static.Executor(static.CPUPlace())
    folder, cache, fs = str(tmp_path / "saved"), str(tmp_path / "cache"), kind()
    with static.program_guard(main, startup), static.scope_guard(scope):
        static.layers.fc(static.layers.data("x", [2], dtype="float32"), 1)
        executor.run(startup)
        weight = main.all_parameters()[0].name
        tensor = scope.find_var(weight).get_tensor()  # type: ignore[union-attr]
        assert program_checkpoints.load(executor, folder, main, fs=fs, cache=cache) is None
        for epoch in range(3):
            tensor.set(np.full((2, 1), epoch, dtype=np.float32))
            saved = program_checkpoints.save(
                executor, folder, epoch, main, fs=fs, cache=cache, keep_all=epoch < 2
            )
            assert saved == epoch
        # Not a checkpoint: it was never finished.
        (tmp_path / "saved" / f"{program_checkpoints.PREFIX}.9.tmp").mkdir()
        tensor.set(np.zeros((2, 1), dtype=np.float32))
        assert program_checkpoints.load(executor, folder, main, fs=fs, cache=cache) == 2
        assert np.array(tensor).tolist() == [[2.0], [2.0]]
    names = sorted(p.name for p in (tmp_path / "saved").iterdir())
    assert names == [f"{program_checkpoints.PREFIX}.2", f"{program_checkpoints.PREFIX}.9.tmp"]
    status = tmp_path / "saved" / names[0] / "fleet_train_status"
    assert json.loads(status.read_text()) == {"epoch_no": 2}
