"""ResNet with LocalSGD whose interval is adaptive or fixed, by the document's command."""

import re

import pytest
from seed_programs import EXAMPLES, run
from tiny_imagenet import SIZES, write_imagenet

pytestmark = pytest.mark.slow  # starts jobs or servers

LINE = re.compile(
    r"^worker_index: (\d), step(\d+) cost = \d+\.\d{6}, total time cost = \d+\.\d{6}, "
    r"step per second: \d+\.\d{6}, speed: \d+\.\d{6}$",
    re.MULTILINE,
)


@pytest.mark.parametrize("k_steps", [None, "2"], ids=["adaptive", "fixed"])
def test_program_of_the_document(tmp_path, k_steps):
    pictures = write_imagenet(tmp_path / "ImageNet")
    settings = {"K_STEPS": k_steps} if k_steps else {}
    command = EXAMPLES / "002_local_sgd" / "eight_cards.sh"
    run(
        tmp_path, "sh", command, "--batch_size", 4,
        GPUS="0,1", IMAGENET=str(pictures / "train.txt"), MODEL_SIZES=SIZES, **settings,
    )  # fmt: skip
    for rank in range(2):
        text = (tmp_path / "log" / f"workerlog.{rank}").read_text()
        assert [(int(w), int(step)) for w, step in LINE.findall(text)] == [(rank, 0), (rank, 1)]
    first = (tmp_path / "log" / "workerlog.0").read_text()
    assert ("adaptive_localsgd" in first) == (k_steps is None), first
