"""The programs as the documents print them, where the documents lie beside the project.

What the documents leave to files around them, and their slips, are filled in; docs/seeds.md lists
the slips. The text is no part of this project.
"""

from __future__ import annotations

import re
import textwrap

import pytest
from running import COST, EPOCH, EXAMPLES, ROOT, saved, workers

DOCUMENTS = ROOT.parent / "shared" / "seeds"
pytestmark = pytest.mark.skipif(
    not DOCUMENTS.is_dir(), reason="the documents are not beside the project"
)


def python_block(document: str, mark: str) -> str:
    """Return the first block of Python in a document that contains a mark, without indentation."""
    (path,) = DOCUMENTS.glob(f"{document}_*")
    text = path.read_text()
    fenced = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    indented = re.findall(r"\.\. code-block:: py\n\n((?:[ ]{3}.*\n|\s*\n)+)", text)
    blocks = [*fenced, *map(textwrap.dedent, indented)]
    return next(block for block in blocks if mark in block)


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


def test_residual_network(tmp_path):
    # What the document leaves to its complete example: few and narrow, but 50 layers.
    around = f"""
    import os, sys
    sys.path.insert(0, {str(EXAMPLES / "001_static_quick_start")!r})
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
