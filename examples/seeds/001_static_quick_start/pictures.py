"""Where the scripts of this folder get pictures from, and their options."""

import argparse
from collections.abc import Callable, Iterator

import numpy as np

import paddle


def read_options(description: str) -> argparse.Namespace:
    """Read the command line; the defaults train for seconds on a CPU."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--layers", type=int, default=18, help="18, 34, 50, 101 or 152")
    parser.add_argument(
        "--width", type=int, default=8, help="channels of the first stage, 64 usual"
    )
    parser.add_argument("--size", type=int, default=32, help="side of a picture, 224 usual")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--batch", type=int, default=16, help="pictures per worker and step")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--pictures", type=int, default=160, help="made-up pictures per epoch")
    parser.add_argument(
        "--flowers", action="store_true",
        help="train on the Oxford flowers in paddle's cache folder; sets --size 224 --classes 102",
    )  # fmt: skip
    args = parser.parse_args()
    if args.flowers:
        args.size, args.classes = 224, 102
    return args


def read_pictures(args: argparse.Namespace, worker: int, workers: int) -> Callable[[], Iterator]:
    """Return a reader of this worker's share of samples, as many as every other worker has."""

    def made_up() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Noise with a brighter band whose place is the label."""
        rng = np.random.default_rng(0)
        for _ in range(args.pictures):
            label = rng.integers(args.classes, size=1)
            picture = rng.standard_normal((3, args.size, args.size), dtype=np.float32)
            band = args.size * np.arange(int(label[0]), int(label[0]) + 2) // args.classes
            picture[:, band[0] : band[1] + 1] += 2
            yield picture, label

    def flowers() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for pixels, label in paddle.dataset.flowers.train(use_xmap=False)():
            yield pixels.reshape(3, args.size, args.size), np.array([label])

    def share() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        # A round is handed out when it is complete, so all workers see equally many samples.
        pending: list[tuple[np.ndarray, np.ndarray]] = []
        for sample in flowers() if args.flowers else made_up():
            pending.append(sample)
            if len(pending) == workers:
                yield pending[worker]
                pending.clear()

    return share


def make_loader(
    feed_list: list, place: object, args: argparse.Namespace, worker: int = 0, workers: int = 1
) -> object:
    """Return a loader that reads ahead of training; calling it gives the feeds of one epoch."""
    loader = paddle.io.DataLoader.from_generator(feed_list=feed_list, capacity=4, iterable=True)
    samples = read_pictures(args, worker, workers)
    loader.set_sample_generator(samples, batch_size=args.batch, drop_last=True, places=place)
    return loader
