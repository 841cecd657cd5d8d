"""The CTR model: its sizes, and data of 26 slots with one id each. Runs on Python 3.7 too."""

import numpy as np

SLOTS, DIM, IDS, BATCH = 26, 16, 1000000, 512
HIDDEN = (128, 64)
RATE = 0.01
GEO_STEPS = 10
NAMES = [f"slot{i}" for i in range(SLOTS)]


def batches(worker, count=64):
    """Return ids [count, BATCH, SLOTS] and labels [count, BATCH, 1] of one worker."""
    random = np.random.RandomState(1 + worker)
    ids = random.randint(0, IDS, (count, BATCH, SLOTS)).astype("int64")
    labels = random.randint(0, 2, (count, BATCH, 1)).astype("int64")
    return ids, labels


def feeds(worker):
    """Return the feeds of programs: an array per slot, and the labels."""
    found = []
    every, answers = batches(worker)
    for number, ids in enumerate(every):
        feed = {name: np.ascontiguousarray(ids[:, i : i + 1]) for i, name in enumerate(NAMES)}
        feed["label"] = answers[number]
        found.append(feed)
    return found
