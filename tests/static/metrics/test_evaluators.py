"""Metrics whose counts are variables of a program: detection, chunks, edit distance."""

import numpy as np
import pytest

from fleetx import static
from fleetx.static.metrics.detection_map import DetectionMAP
from fleetx.static.metrics.evaluators import ChunkEvaluator, EditDistance, Evaluator
from fleetx.static.readers.lod_tensor import create_lod_tensor


@pytest.fixture(autouse=True)
def _program():
    programs = static.program_guard(static.Program(), static.Program())
    with programs, static.unique_name.guard(), static.scope_guard(static.Scope()):
        yield


def sequences(array, lengths):
    return create_lod_tensor(array, [lengths], static.CPUPlace())


def batch(hits):
    """Return two images with a true box each; the detection of an image is right or wrong."""
    boxes = np.array([[0.1, 0.1, 0.4, 0.4], [0.5, 0.5, 0.9, 0.9]], "float32")
    shift = np.where(np.array(hits)[:, None], 0.0, 0.35).astype("float32")
    scores = np.array([[0.9], [0.8]], "float32")
    found = np.concatenate([np.ones((2, 1), "float32"), scores, boxes - shift], 1)
    return {
        "found": sequences(found, [1, 1]),
        "label": sequences(np.ones((2, 1), "float32"), [1, 1]),
        "box": sequences(boxes, [1, 1]),
    }


def test_precision_of_a_detector_over_batches():
    found, label, box = (
        static.data(name, [-1, width], lod_level=1)
        for name, width in (("found", 6), ("label", 1), ("box", 4))
    )
    metric = DetectionMAP(found, label, box, class_num=2)
    executor = static.Executor()
    executor.run(static.default_startup_program())

    def run(hits):
        return [
            float(v[0])
            for v in executor.run(feed=batch(hits), fetch_list=list(metric.get_map_var()))
        ]

    np.testing.assert_allclose(run([True, True]), [1.0, 1.0])
    # Over both batches, 3 of 4 boxes are found: the detections are right, right, right, wrong.
    np.testing.assert_allclose(run([True, False]), [0.5, 0.75])
    metric.reset(executor)
    np.testing.assert_allclose(run([True, False]), [0.5, 0.5])


def test_precision_of_a_detector_needs_the_number_of_classes():
    with pytest.raises(ValueError, match="class_num"):
        DetectionMAP(None, None, None)


def test_chunks_and_distances_over_batches():
    x, y = (static.data(name, [-1, 1], "int64", lod_level=1) for name in "xy")
    chunks = ChunkEvaluator(x, y, "IOB", 1)  # 0 begins a chunk, 1 is inside, 2 outside
    distance = EditDistance(x, y)
    executor = static.Executor()
    executor.run(static.default_startup_program())
    first = [[0, 1, 2], [0, 2, 0, 2]], [[0, 1, 2], [2, 2, 0, 2]]  # 3 found, 2 true, 2 right
    second = [[0, 0]], [[0, 1]]  # 2 found, 1 true, none right
    for _ in range(2):
        chunks.reset(executor)
        distance.reset(executor)
        for found, true in (first, second):
            feed = {
                name: sequences(
                    np.concatenate(rows)[:, None].astype("int64"), [len(row) for row in rows]
                )
                for name, rows in (("x", found), ("y", true))
            }
            executor.run(feed=feed, fetch_list=[*chunks.metrics, *distance.metrics])
        precision, recall, score = chunks.eval(executor)
        np.testing.assert_allclose([precision[0], recall[0], score[0]], [2 / 5, 2 / 3, 1 / 2])
        mean, errors = distance.eval(executor)
        # normalised by the length of the true sequence: 0, 1 / 4, 1 / 2
        np.testing.assert_allclose([mean[0], errors[0]], [0.75 / 3, 2 / 3])


def test_an_evaluator_of_ones_own_defines_eval():
    with pytest.raises(NotImplementedError, match="eval"):
        Evaluator("own").eval(static.Executor())
