"""ImageNet photographs: decoding and augmentation against OpenCV and Pillow; waits in training.

    python bench/data.py [--rounds 9] [--steps 12]

The peers do what the reader of Fleet's documents does: read the whole photograph, crop a random
part, resize it to 224x224, flip it half the time, normalise. One thread each. Then ResNet-50 is
trained with batches of 8 from two loader processes, and the time it waits for them is measured from
its first batch. Figures go to bench/results/data.json.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from contest import ROOT, Contestant, contest
from goals import goal
from goals import show as show_goals
from record import write_record
from static_graph import row, show

PEERS = {
    "OpenCV, the documents' reader": ("images_opencv.py", 1.5),
    "Pillow": ("images_pillow.py", 2.0),
}


def decoding(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Return the rows of the table: photographs per second on one core."""
    count = len((folder / "train.txt").read_text().splitlines())
    ours = Contestant("fleetx", "images_fleetx.py", arguments=(str(folder),))
    peers = [
        Contestant(name, script, arguments=(str(folder),)) for name, (script, _) in PEERS.items()
    ]
    contest([ours, *peers], steps=count, rounds=rounds)
    return [
        row("decode and augment, images/s per core", ours, peer, PEERS[peer.name][1])
        for peer in peers
    ]


def waiting(folder: Path, steps: int, threads: int) -> dict[str, Any]:
    """Return the fraction of the training time spent waiting."""
    training = Contestant(
        "ResNet-50", "images_training.py", arguments=(str(folder), str(steps), str(threads))
    )
    training.start()
    training.stop()
    share = 100 * training.facts["waited"] / training.facts["seconds"]
    what = f"ResNet-50, batch 8, {threads} threads: time waiting for two loader processes, %"
    return goal(what, share, 3, at_least=False)


def main() -> None:
    """Measure, print the tables and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each contestant")
    parser.add_argument("--steps", type=int, default=12, help="training steps")
    sample = ROOT.parent / "shared" / "data" / "imagenet-sample"
    parser.add_argument("--data", type=Path, default=sample, help="a folder with train.txt, train/")
    options = parser.parse_args()
    if not (options.data / "train.txt").exists():
        parser.error(f"{options.data} has no train.txt: pass an ImageNet folder by --data.")
    rows = decoding(options.data, options.rounds)
    show(rows, "ImageNet photographs on one core")
    goals = [waiting(options.data, options.steps, os.cpu_count() or 1)]
    show_goals(goals)
    write_record("data", rows=rows, goals=goals)


if __name__ == "__main__":
    main()
