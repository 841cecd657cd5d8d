"""The programs as the documents print them, where the documents lie beside the project.

What the documents leave to files around them, and their slips, are filled in; docs/seeds.md lists
the slips. The text is no part of this project.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap

import pytest
from seed_programs import (
    COST,
    EPOCH,
    EXAMPLES,
    ROOT,
    environment,
    run,
    saved,
    workers,
)
from tiny_imagenet import SIZES, served, write_imagenet

from ports import free_endpoints
from waiting import LIMIT

DOCUMENTS = ROOT.parent / "shared" / "seeds"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not DOCUMENTS.is_dir(),
        reason="not beside the project: documents, data",
    ),
]


def python_blocks(document: str) -> list[str]:
    """Return the blocks of Python in a document, without indentation."""
    (path,) = DOCUMENTS.glob(f"{document}_*")
    text = path.read_text()
    fenced = re.findall(r"^``` ?python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    indented = re.findall(r"\.\. code-block:: py(?:thon)?\n\n((?:[ ]{3}.*\n|\s*\n)+)", text)
    return [*fenced, *map(textwrap.dedent, indented)]


def python_block(document: str, mark: str) -> str:
    """Return the first block of Python in a document that contains a mark."""
    return next(block for block in python_blocks(document) if mark in block)


def test_four_steps(tmp_path):
    text = python_block("000", "# Step 1: Import")
    assert "startup_program()" in text  # a slip: it is a program, not a function
    text = text.replace("exe.run(startup_program())", "exe.run(startup_program)")
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "pretrained_model").mkdir()
    printed = workers(tmp_path, tmp_path / "train.py")
    for text in printed:
        assert len(COST.findall(text)) == 1001
    assert "fc_0.w_0" in saved(tmp_path / "pretrained_model")


def test_evaluation(tmp_path):
    write_imagenet(tmp_path / "data", train=6)
    for package in ("models", "utils"):
        (tmp_path / package).symlink_to(ROOT / "examples" / "imagenet" / package)
    (tmp_path / "evaluation.py").write_text(python_block("000", "def evaluate(args)"))
    options = ("--image_shape", "3,32,32", "--class_dim", 4, "--batch_size", 4)
    printed = run(tmp_path, "python", "evaluation.py", "--data_dir", "./data", *options)
    assert "batch: 0\n" in printed


def test_residual_network(tmp_path):
    # What the document leaves to its complete example: few and narrow, but 50 layers.
    (tmp_path / "resnet.py").symlink_to(EXAMPLES / "001_static_quick_start" / "resnet.py")
    around = """
    import os
    import functools, types
    import numpy as np
    import resnet
    resnet.ResNet = functools.partial(resnet.ResNet, width=4)
    class_dim = 10
    def get_train_loader(feed_list, place):
        def batches():
            yield np.ones((2, 3, 224, 224), "float32"), np.array([[1], [2]])
        loader = paddle.io.DataLoader.from_generator(feed_list=feed_list, capacity=2)
        loader.set_batch_generator(batches, places=place)
        return loader
    def optimizer_setting():
        return paddle.optimizer.Momentum(learning_rate=0.01, momentum=0.9)
    """
    text = python_block("001", "from paddle.distributed import fleet\n\ndef")
    script = tmp_path / "train_fleet_static.py"
    script.write_text(textwrap.dedent(around) + text + "\ntrain_resnet()\n")
    printed = workers(tmp_path, script)
    for text in printed:
        assert EPOCH.findall(text) == [(str(i), "0") for i in range(10)]
    assert "Find all_reduce operators: 161." in printed[0]


def small_resnet(text: str) -> str:
    sizes = ", ".join(f"{name}={value}" for name, value in json.loads(SIZES).items())
    assert "Resnet50()" in text
    return text.replace("Resnet50()", f"Resnet50({sizes})")


def test_local_sgd(tmp_path):
    pictures = write_imagenet(tmp_path / "ImageNet", train=8)
    text = small_resnet("\n".join(python_blocks("002")))
    for slip, right in (
        ("import os\n", "import os\nimport paddle\npaddle.enable_static()\n"),
        ("enumerate(data_loader())", "enumerate(loader())"),
        ("1 / (end_time - start_time))", "1 / (end_time - start_time)))"),
        ('"/pathto/ImageNet/train.txt"', f'"{pictures}/train.txt", batch_size=2'),
    ):
        assert text.count(slip) == 1
        text = text.replace(slip, right)
    (tmp_path / "resnet50_localsgd.py").write_text(text)
    for text in workers(tmp_path, tmp_path / "resnet50_localsgd.py"):
        assert len(COST.findall(text)) == 2


def test_combined_strategies(tmp_path):
    blocks = [block for block in python_blocks("003") if "fleetrun" not in block]
    assert len(blocks) == 6  # the last one is for the strategy `auto`
    text = small_resnet("\n".join(blocks[:5]))
    address = re.search("https://[^']+", text).group()
    slip = "dist_strategy.amp = True"
    text = text.replace(slip, f"dist_strategy = fleet.DistributedStrategy()\n{slip}")
    text = text.replace("batch_size = 32", "batch_size = 4")
    with served(tmp_path) as here:
        (tmp_path / "train.py").write_text(text.replace(address, here))
        for text in workers(tmp_path, tmp_path / "train.py"):
            assert len(COST.findall(text)) == 2


# What the fourth document leaves out: imports, a network, a reader, an executor.
AROUND_SERVERS = """
import os
import numpy as np
import paddle
import paddle.fluid as fluid
from paddle.fluid.incubate.fleet.base.role_maker import Role, UserDefinedRoleMaker
from paddle.fluid.transpiler import DistributeTranspilerConfig
def fake_reader():
    def reader():
        for i in range(48):
            yield np.full(13, i % 2, "float32"), [i % 2]
    return reader
def model():
    global x, y, auc, auc_batch
    x = fluid.layers.data(name="x", shape=[13], dtype="float32")
    y = fluid.layers.data(name="y", shape=[1], dtype="int64")
    predict = fluid.layers.fc(x, 2, act="softmax")
    auc, auc_batch, _ = fluid.layers.auc(input=predict, label=y)
    return fluid.layers.mean(fluid.layers.cross_entropy(predict, y))
place = fluid.CPUPlace()
exe = fluid.Executor(place)
"""


def test_parameter_servers(tmp_path):
    text = AROUND_SERVERS + "\n".join(python_blocks("004"))
    for written, here in (
        ("current_id=0", "current_id=int(os.environ['ID'])"),
        ("role=Role.WORKER", "role=Role[os.environ['ROLE']]"),
        ("worker_num=3", "worker_num=2"),
        ('["127.0.0.1:6001","127.0.0.1:6002"]', "os.environ['ENDPOINTS'].split(',')"),
        ("= \\ \n", "= \\\n"),  # a slip: a space after the backslash
    ):
        assert text.count(written) == 1, written
        text = text.replace(written, here)
    (tmp_path / "train.py").write_text(text)
    endpoints = ",".join(free_endpoints(2))
    command = [sys.executable, "train.py"]
    processes = {
        (role, number): subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment(tmp_path, ROLE=role, ID=str(number), ENDPOINTS=endpoints),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for role in ("SERVER", "WORKER")
        for number in range(2)
    }
    try:
        for (role, _), process in processes.items():
            printed, _ = process.communicate(timeout=LIMIT)
            assert process.returncode == 0, printed
            passes = re.findall(r"^Pass (\d), cost = \S+, auc = ", printed, re.MULTILINE)
            assert passes == [str(i // 2) for i in range(20 if role == "WORKER" else 0)]
    finally:
        for process in processes.values():
            process.terminate()
            process.wait()
