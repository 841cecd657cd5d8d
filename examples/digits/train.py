"""Train, save, load and use a small convolutional network on handwritten digits.

This is what `make demo` runs, with two workers under fleetrun: scikit-learn's digits (1797 pictures
of 8x8 pixels), a static-graph program of `fleetx.static` whose gradients are averaged by
`fleetx.fleet`, and an inference model in the folder `output` beside it. `python train.py` trains on
one worker; the global batch is the same either way.
"""

import argparse
import os
from pathlib import Path

import numpy as np
from rich.console import Console
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from fleetx import fleet, monitor, static
from fleetx.static import layers

OUTPUT = Path(__file__).resolve().parent / "output"
SHADES = " .:-=+*#%@"


def load_pictures(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return training pictures, test pictures, training labels, test labels."""
    digits = load_digits()
    pictures = (digits.images / 16.0).astype("float32")[:, None]  # [N, 1, 8, 8]
    labels = digits.target.astype("int64")[:, None]
    return train_test_split(
        pictures, labels, test_size=0.2, stratify=digits.target, random_state=seed
    )


def network(picture: static.Variable) -> static.Variable:
    """Add the layers to the current program and return one score per digit."""
    hidden = layers.conv2d(picture, num_filters=16, filter_size=3, padding=1, act="relu")
    hidden = layers.conv2d(hidden, num_filters=32, filter_size=3, padding=1, act="relu")
    hidden = layers.pool2d(hidden, pool_size=2, pool_type="max", pool_stride=2)
    hidden = layers.fc(hidden, size=64, act="relu")
    hidden = layers.dropout(hidden, dropout_prob=0.2)
    return layers.fc(hidden, size=10)


def batches(pictures: np.ndarray, labels: np.ndarray, size: int, rng: np.random.Generator):
    """Yield one epoch as feeds, in random order: this worker's share of each global batch."""
    order = rng.permutation(len(pictures))  # the same on all workers, which have one seed
    for start in range(0, len(order), size):
        chosen = order[start : start + size][fleet.worker_index() :: fleet.worker_num()]
        yield {"picture": pictures[chosen], "label": labels[chosen]}


def train(args: argparse.Namespace, console: Console) -> tuple[np.ndarray, np.ndarray]:
    """Train, report the accuracy on the test pictures, save, and return those pictures."""
    train_x, test_x, train_y, test_y = load_pictures(args.seed)

    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = args.seed
    with static.program_guard(main, startup):
        picture = static.data("picture", [None, 1, 8, 8], "float32")
        label = static.data("label", [None, 1], "int64")
        scores = network(picture)
        loss = layers.mean(layers.softmax_with_cross_entropy(scores, label))
        chances = layers.softmax(scores)
        accuracy = layers.accuracy(chances, label)
        # Cloned before minimize(): neither dropout nor updates, but the same parameters.
        test = main.clone(for_test=True)
        optimizer = static.optimizer.Adam(learning_rate=args.learning_rate)
        fleet.distributed_optimizer(optimizer).minimize(loss, startup)

    exe = static.Executor(static.CPUPlace())
    exe.run(startup)

    def test_accuracy() -> float:
        feed = {"picture": test_x, "label": test_y}
        (value,) = exe.run(test, feed=feed, fetch_list=[accuracy])
        return float(value.item())

    rng = np.random.default_rng(args.seed)
    steps = -(-len(train_x) // args.batch_size)
    for _ in monitor.epochs(args.epochs):
        epoch = batches(train_x, train_y, args.batch_size, rng)
        for feed in monitor.watch(epoch, total=steps):
            exe.run(main, feed=feed, fetch_list=[loss])
        monitor.note(test=f"{test_accuracy():.1%}")

    workers = "1 worker" if fleet.worker_num() == 1 else f"{fleet.worker_num()} workers"
    console.print(f"Trained by {workers}.")
    console.print(f"Accuracy on {len(test_x)} pictures it never saw: {test_accuracy():.2%}")
    if fleet.is_first_worker():
        model = args.output / "digits"
        static.io.save_inference_model(model, [picture], [chances], exe, program=main)
        console.print(f"Model saved as {os.path.relpath(model)}.pdmodel and .pdiparams")
    return test_x, test_y


def predict(model: Path, pictures: np.ndarray, labels: np.ndarray, console: Console) -> None:
    """Load the saved model as a new process would, and show what it sees in one picture."""
    exe = static.Executor(static.CPUPlace())
    with static.scope_guard(static.Scope()):
        program, feed_names, targets = static.io.load_inference_model(model, exe)
        (chances,) = exe.run(program, feed={feed_names[0]: pictures[:1]}, fetch_list=targets)
    for row in pictures[0, 0]:
        console.print("    " + "".join(2 * SHADES[int(v * (len(SHADES) - 1))] for v in row))
    digit = int(chances[0].argmax())
    console.print(
        f"The loaded model sees a [bold]{digit}[/bold] ({chances[0, digit]:.1%} sure); "
        f"the picture's label is {labels[0, 0]}."
    )


def main() -> None:
    """Read the options, join the other workers, train, then predict with the saved model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder for the model")
    args = parser.parse_args()
    fleet.init(is_collective=True)
    console = Console(quiet=not fleet.is_first_worker())
    pictures, labels = train(args, console)
    if fleet.is_first_worker():
        predict(args.output / "digits", pictures, labels, console)


if __name__ == "__main__":
    main()
