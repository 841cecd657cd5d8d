"""The data set as a Paddle reader, and in a program."""

import numpy as np
import pytest

from fleetx.data.imagenet import ImageNet
from fleetx.data.imagenet_augment import Augment

SMALL = Augment(crop_size=16, resize_short_size=18)


def data_set(root, **options):
    return ImageNet(root, augment=SMALL, **options)


def test_samples_lists_and_batches_are_the_same_pictures(imagenet):
    batches = list(data_set(imagenet, batch_size=4).reader("batches")())
    assert [images.shape for images, _ in batches] == [(4, 3, 16, 16)] * 5 + [(3, 3, 16, 16)]
    assert batches[0][1].shape == (4, 1)
    lists = list(data_set(imagenet, batch_size=4).reader(num_workers=1)())
    samples = list(data_set(imagenet, batch_size=4).reader("samples")())
    single = list(data_set(imagenet).reader("samples")())
    rows = [row for sample_list in lists for row in sample_list]
    for i, (image, label) in enumerate(rows):
        for other, other_label in (samples[i], single[i]):
            np.testing.assert_array_equal(image, other)
            assert label == other_label
        np.testing.assert_array_equal(image, batches[i // 4][0][i % 4])
        assert label == batches[i // 4][1][i % 4, 0]


def test_every_call_is_another_epoch(imagenet):
    reader = data_set(imagenet, batch_size=23, sharding="paddle").reader()
    passes = [[label for rows in reader() for _, label in rows] for _ in range(2)]
    for epoch, labels in enumerate(passes):
        order = [i // 2 for i in range(23)]
        np.random.RandomState(epoch).shuffle(order)
        assert labels == order


def test_wrong_kinds(imagenet):
    with pytest.raises(ValueError, match="kind must be one of 'samples'"):
        data_set(imagenet).reader("rows")
    with pytest.raises(ValueError, match="a reader of batches needs a data set with a batch_size"):
        data_set(imagenet).reader("batches")


@pytest.mark.parametrize("kind", ["samples", "sample_lists", "batches"])
def test_a_program_reads_it(imagenet, kind):
    import paddle.fluid as fluid

    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        image = fluid.data("image", [None, 3, 16, 16], "float32")
        label = fluid.data("label", [None, 1], "int64")
        total = fluid.layers.reduce_sum(fluid.layers.cast(label, "float32"))
        mean = fluid.layers.reduce_mean(image)
        loader = fluid.io.DataLoader.from_generator(feed_list=[image, label], capacity=2)
    place, reader = fluid.CPUPlace(), data_set(imagenet, batch_size=6).reader(kind)
    if kind == "samples":
        loader.set_sample_generator(reader, batch_size=6, drop_last=False, places=place)
    elif kind == "sample_lists":
        loader.set_sample_list_generator(reader, places=place)
    else:
        loader.set_batch_generator(reader, places=place)
    executor = fluid.Executor(place)
    executor.run(startup)
    labels, means = 0.0, []
    for feed in loader():
        sum_, mean_ = executor.run(main, feed=feed, fetch_list=[total, mean])
        labels += float(np.asarray(sum_).reshape(-1)[0])
        means.append(float(np.asarray(mean_).reshape(-1)[0]))
    assert labels == sum(i // 2 for i in range(23))
    expected = [float(images.mean()) for images, _ in data_set(imagenet, batch_size=6)]
    np.testing.assert_allclose(means, expected, rtol=1e-4, atol=1e-5)
