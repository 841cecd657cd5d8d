"""The training script of the collective guide, by the guide's commands, on a few small pictures."""

from __future__ import annotations

import re
import shutil

import pytest
from seed_programs import EPOCH, EXAMPLES, ROOT, run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_imagenet import write_imagenet

pytestmark = pytest.mark.slow  # starts jobs or servers

SMALL = (
    "--model=ResNet18", "--class_dim=4", "--image_shape=3,32,32", "--resize_short_size=36",
    "--batch_size=4", "--reader_processes=1", "--log_every=1",
)  # fmt: skip
TEST = re.compile(r"^\[Epoch (\d+), test\] loss: \d+\.\d{5}, acc1: \d\.\d{5}", re.MULTILINE)


@pytest.fixture
def commands(tmp_path):
    """A copy of the script, its pictures beside it, and of the commands: they write where they
    are."""
    copy = tmp_path / "examples"
    for part in ("imagenet", "seeds/000_collective_guide"):
        shutil.copytree(ROOT / "examples" / part, copy / part)
    write_imagenet(copy / "imagenet" / "ImageNet")
    return copy / "seeds" / EXAMPLES.joinpath("000_collective_guide").name / "commands"


def steps(printed):
    return [(int(epoch), int(step)) for epoch, step in EPOCH.findall(printed)]


def test_one_card_then_two_go_on_behind_the_checkpoint(commands, tmp_path):
    script = commands.parents[2] / "imagenet"
    more = (*SMALL, "--tensorboard=board")
    printed = run(tmp_path, "sh", commands / "one_card.sh", *more, "--num_epochs=2")
    assert steps(printed) == [(epoch, step) for epoch in (0, 1) for step in range(4)]
    assert TEST.findall(printed) == ["0", "1"]
    events = EventAccumulator(str(script / "board")).Reload()
    assert [e.step for e in events.Scalars("train/loss")] == list(range(8))
    assert [e.step for e in events.Scalars("test/acc5")] == [4, 8]
    more = (*SMALL, "--use_recompute=True", "--num_epochs=3")
    printed = run(tmp_path, "sh", commands / "several_cards.sh", *more, NUM_CARDS="2")
    assert "resuming after epoch 1" in printed
    assert "fleet: recompute; 2 worker(s)" in printed
    assert steps(printed) == [(2, 0), (2, 1)]
    assert (script / "output" / "model" / "__model__").exists()
    found = [p.name for p in (script / "output" / "checkpoints").iterdir()]
    assert found == ["__paddle_fleet_checkpoint__.2"]


def test_other_switches(commands, tmp_path):
    script = commands.parents[2] / "imagenet"
    start = ("fleetrun", "--nproc_per_node", 2, script / "train_with_fleet.py", "--num_epochs=1")
    for switch, said in (
        (("--use_dgc=True", "--lr_strategy=cosine_decay", "--warmup_epochs=1"), "dgc"),
        (("--use_local_sgd=True", "--local_sgd_steps=2"), "localsgd"),
    ):
        printed = run(script, *start, *SMALL, *switch, f"--checkpoint_dir={len(said)}")
        assert f"fleet: {said}; 2 worker(s)" in printed
        assert steps(printed) == [(0, 0), (0, 1)]
        assert TEST.findall(printed) == ["0"]


def test_more_pictures_in_a_step_than_there_are_is_an_error(commands, tmp_path):
    more = (*SMALL, "--batch_size=400", "--num_epochs=1")
    printed = run(tmp_path, "sh", commands / "one_card.sh", *more, fails=True)
    assert "--batch_size 400 times 1 worker(s) is more than the 16 pictures" in printed
