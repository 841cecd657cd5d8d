"""A handful of pictures in the layout of ImageNet, on a disk or on a server."""

from __future__ import annotations

import contextlib
import hashlib
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
from PIL import Image

# Sizes of a network that such pictures are enough for.
SIZES = '{"depth": 18, "width": 4, "image_size": 32, "class_dim": 4}'


def write_imagenet(folder: Path, train: int = 16, val: int = 8) -> Path:
    """Write pictures of 4 kinds, which differ in colour, and the lists of them."""
    rng = np.random.default_rng(0)
    for part, count in (("train", train), ("val", val)):
        lines = []
        for number in range(count):
            label = number % 4
            name = f"n{label:08d}/n{label:08d}_{number}.jpeg"
            if part == "val":
                name = f"ILSVRC2012_val_{number + 1:08d}.jpeg"
            path = folder / part / name
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 128, (40, 48, 3), dtype=np.uint8)
            pixels[:, :, label % 3] += 100 if label < 3 else 0
            Image.fromarray(pixels).save(path, "JPEG")
            lines.append(f"{name} {label}\n")
        (folder / f"{part}.txt").write_text("".join(lines))
    return folder


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve pictures as a data set to download; give the address of its YAML file."""
    pictures = write_imagenet(folder / "pictures")
    remote = folder / "remote"
    remote.mkdir()
    with tarfile.open(remote / "all.tar", "w") as tar:
        for name in ("train", "val", "train.txt", "val.txt"):
            tar.add(pictures / name, arcname=name)
    md5 = hashlib.md5((remote / "all.tar").read_bytes()).hexdigest()
    (remote / "filelist.txt").write_text(f"all.tar {md5}\n")
    (remote / "meta.txt").write_text("pictures\n")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(remote)))
    address = f"http://127.0.0.1:{server.server_port}"
    (remote / "small_imagenet.yaml").write_text(f"bos_path: {address}\n")
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"{address}/small_imagenet.yaml"
    finally:
        server.shutdown()
        server.server_close()
