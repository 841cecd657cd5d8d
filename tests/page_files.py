"""What the programs of the pages need to run in a test: small files, a server, smaller networks."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
import tarfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
from PIL import Image

import warm_start
from fleetx.evaluation.vectors_file import vectors_file
from ports import free_ports
from waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent
# What a page says, and what the test runs in its place; every text must be in the page.
SMALLER = {
    "docs/applications": {
        "Resnet50()": "Resnet50(depth=18, width=4, image_size=32)",
        'BertBase("en")': 'BertBase("en", layers=2, hidden=32, heads=2, inner=64)',
        "batch_size=4096, max_seq_len=512": "batch_size=256, max_seq_len=32",
        "batch_size=configs.batch_size": "batch_size=8",
    },
    "docs/data": {"https://host/small_imagenet.yaml": "ADDRESS/small_imagenet.yaml"},
    "docs/serving": {"http://127.0.0.1:8000": "ADDRESS"},
}


def _imagenet(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for part, count in (("train", 64), ("val", 8)):
        lines = []
        for number in range(count):
            path = folder / part / f"n{number % 4:08d}" / f"{number}.jpeg"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 255, (40, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(path, "JPEG")
            lines.append(f"{path.relative_to(folder / part)} {number % 4}\n")
        (folder / f"{part}.txt").write_text("".join(lines))


def _criteo(folder: Path) -> None:
    (folder / "criteo").mkdir()
    line = "\t".join(["1", *map(str, range(13)), *(f"c{i}" for i in range(26))])
    (folder / "criteo" / "train").write_text(f"{line}\n" * 1000)


def _text(folder: Path, documents: int = 16) -> None:
    random = np.random.RandomState(0)
    words = [f"w{number}" for number in range(20)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    sentences = [" ".join(random.choice(words, 6)) for _ in range(8 * documents)]
    text = "\n\n".join("\n".join(sentences[i : i + 8]) for i in range(0, len(sentences), 8))
    for place in (folder / "text", folder / "wiki", folder / "data"):
        place.mkdir()
        (place / "train.txt").write_text(text + "\n")
    (folder / "vocab.txt").write_text("\n".join([*special, *words]) + "\n")
    (folder / "data" / "vocab.txt").write_text("\n".join([*special, *words]) + "\n")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def _data(folder: Path) -> Iterator[str]:
    """Files of all readers, and a server with the data set that the page downloads."""
    _imagenet(folder / "ImageNet")
    _criteo(folder)
    _text(folder)
    remote = folder / "remote"
    remote.mkdir()
    with tarfile.open(remote / "all.tar", "w") as tar:
        tar.add(folder / "ImageNet" / "val.txt", arcname="val.txt")
    md5 = hashlib.md5((remote / "all.tar").read_bytes()).hexdigest()
    (remote / "filelist.txt").write_text(f"all.tar {md5}\n")
    (remote / "meta.txt").write_text("pictures\n")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(remote)))
    address = f"http://127.0.0.1:{server.server_port}"
    (remote / "small_imagenet.yaml").write_text(f"bos_path: {address}\n")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield address
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def _applications(folder: Path) -> Iterator[str]:
    _imagenet(folder / "ImageNet")
    _text(folder)
    yield ""


@contextlib.contextmanager
def _evaluation(folder: Path) -> Iterator[str]:
    with vectors_file(folder / "vectors.safetensors", 4, 1, {}) as file:
        file.add(["a", "b", "c", "d"], {"scores": np.ones((4, 3), "float32")})
    yield ""


_SAVE = """
from fleetx import static
x = static.data("x", [None, 4], "float32")
y = static.layers.softmax(static.layers.fc(x, size=3))
exe = static.Executor()
exe.run(static.default_startup_program())
static.io.save_inference_model("output/model", [x], [y], exe)
"""


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/ready") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@contextlib.contextmanager
def _serving(folder: Path) -> Iterator[str]:
    """A saved model, and a server of it."""
    environment = warm_start.environment()
    subprocess.run([sys.executable, "-c", _SAVE], cwd=folder, env=environment, check=True)
    (port,) = free_ports(1)
    command = ["-m", "fleetx", "serve", "output/model"]
    server = subprocess.Popen(
        [sys.executable, *command, "--port", str(port)],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _answers(address), "the server")
        yield address
    finally:
        server.terminate()
        server.wait()


_FILES = {
    "docs/applications": _applications,
    "docs/data": _data,
    "docs/evaluation": _evaluation,
    "docs/serving": _serving,
}


@contextlib.contextmanager
def prepared(page: str, folder: Path) -> Iterator[Callable[[str], str]]:
    """Put what a page needs into a folder; yield the function that makes its programs smaller."""
    text = (ROOT / f"{page}.md").read_text()
    replaced = SMALLER.get(page, {})
    missing = [old for old in replaced if old not in text]
    assert not missing, f"{page}.md no longer says {missing}"
    with _FILES.get(page, lambda _: contextlib.nullcontext(""))(folder) as address:

        def smaller(program: str) -> str:
            for old, new in replaced.items():
                program = program.replace(old, new.replace("ADDRESS", address))
            return program

        yield smaller
