"""A network for pictures, and servers in processes of their own, for tests of the evaluation."""

import contextlib
import subprocess
import sys
from pathlib import Path

import warm_start
from fleetx import static
from fleetx.static import layers
from waiting import LIMIT

ROOT = Path(__file__).resolve().parent.parent.parent


def save_network(path: Path, seed: int) -> Path:
    """Save a small network for pictures [3, 16, 16] with 1000 scores, with weights of a seed."""
    main, startup = static.Program(), static.Program()
    main.random_seed = startup.random_seed = seed
    with static.program_guard(main, startup):
        picture = static.data("picture", [None, 3, 16, 16], "float32")
        hidden = layers.conv2d(picture, num_filters=8, filter_size=3, padding=1, act="relu")
        hidden = layers.pool2d(hidden, pool_size=4, pool_type="max", pool_stride=4)
        scores = layers.fc(hidden, size=1000)
    exe = static.Executor(static.CPUPlace())
    with static.scope_guard(static.Scope()):
        exe.run(startup)
        static.io.save_inference_model(path, [picture], [scores], exe, program=main)
    return path


@contextlib.contextmanager
def started(*command: str | Path):
    """Run a server in a separate process; yield the address in its first line of output."""
    process = subprocess.Popen(
        [sys.executable, *map(str, command)],
        stdout=subprocess.PIPE,
        text=True,
        env=warm_start.environment(),
    )
    try:
        line = process.stdout.readline()
        assert "http://" in line, f"the server said {line!r}"
        yield "http://" + line.split("http://")[1].split()[0]
    finally:
        process.terminate()
        process.wait(LIMIT)
        process.stdout.close()
