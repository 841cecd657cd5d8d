"""Scripts that convert the files of a dataset start without PyTorch and end without a traceback."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import paddle.fluid as fluid

GENERATOR = """
import sys
{imports}

class Generator({base}):
    def generate_sample(self, line):
        def samples():
            yield [("x", [float(word) for word in line.split()])]
        return samples

Generator().run_from_stdin()
assert "torch" not in sys.modules
{more}
"""


@pytest.mark.parametrize(
    ("imports", "base"),
    [
        (
            "import paddle.fluid.incubate.data_generator as dg",
            "dg.MultiSlotDataGenerator",
        ),
        ("from paddle.distributed import fleet", "fleet.MultiSlotDataGenerator"),
        ("import paddle.distributed.fleet as fleet", "fleet.MultiSlotDataGenerator"),
        (
            "from paddle.fluid.incubate.data_generator import MultiSlotDataGenerator",
            "MultiSlotDataGenerator",
        ),
    ],
)
def test_a_pipe_command_loads_no_torch(imports: str, base: str, tmp_path: Path) -> None:
    dataset = _dataset(tmp_path, GENERATOR.format(imports=imports, base=base, more=""), 3)
    assert sum(len(batch["x"].numpy()) for batch in dataset) == 3


@pytest.mark.slow
def test_a_pipe_command_that_needs_more_loads_it(tmp_path: Path) -> None:
    more = "import paddle, paddle.fluid as fluid\n"
    more += "assert fluid.layers.fc and paddle.to_tensor and fleet.init and paddle.__version__\n"
    text = GENERATOR.format(
        imports="from paddle.distributed import fleet", base="fleet.MultiSlotDataGenerator",
        more=more,
    )  # fmt: skip
    dataset = _dataset(tmp_path, text, 2)
    assert sum(len(batch["x"].numpy()) for batch in dataset) == 2


def test_a_reader_that_stops_leaves_no_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = GENERATOR.format(
        imports="import paddle.fluid.incubate.data_generator as dg",
        base="dg.MultiSlotDataGenerator",
        more="",
    )
    for _ in _dataset(tmp_path, text, 50000):
        break
    assert "Traceback" not in capfd.readouterr().err


def _dataset(folder: Path, text: str, lines: int) -> fluid.dataset.QueueDataset:
    (folder / "generator.py").write_text(text)
    (folder / "data.txt").write_text("1 2\n" * lines)
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.layers.data("x", [2])
    dataset = fluid.DatasetFactory().create_dataset("QueueDataset")
    dataset.set_use_var([x])
    dataset.set_batch_size(2)
    dataset.set_pipe_command(f"{sys.executable} {folder}/generator.py")
    dataset.set_filelist([str(folder / "data.txt")])
    return dataset
