"""Combined strategies: every row of the table, and the document's training with data that is
downloaded."""

import re

import pytest
from seed_programs import COST, EXAMPLES, run, workers
from tiny_imagenet import SIZES, served

pytestmark = pytest.mark.slow  # starts jobs or servers

FOLDER = EXAMPLES / "003_combined_strategies"


def test_every_combination_of_the_table_trains(tmp_path):
    for text in workers(tmp_path, FOLDER / "combinations.py"):
        rows = re.findall(r"^(\d+)\. (.+): (\S+) -> (\S+)\napplied: (.*)$", text, re.MULTILINE)
        assert [int(number) for number, *_ in rows] == list(range(1, 11)), text
        for _, names, begin, end, applied in rows:
            assert float(end) < float(begin), names
            assert len(applied.split()) >= len(names.split(" + ")), (names, applied)


def test_training_of_the_document_with_its_command(tmp_path):
    speeds = re.compile(COST.pattern + r", speed: \d+\.\d+$", re.MULTILINE)
    with served(tmp_path) as address:
        for mode in ("", "1"):
            run(
                tmp_path, "sh", FOLDER / "eight_cards.sh", "--batch_size", 4,
                GPUS="0,1", FS_YAML=address, MODEL_SIZES=SIZES, AUTO=mode,
            )  # fmt: skip
            for rank in range(2):
                text = (tmp_path / "log" / f"workerlog.{rank}").read_text()
                steps = [(int(worker), int(step)) for worker, step, _ in speeds.findall(text)]
                assert steps[-2:] == [(rank, 0), (rank, 1)], text
            assert (tmp_path / "data" / "train.txt").exists()
