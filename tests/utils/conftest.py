"""A data set on a server."""

import numpy as np
import pytest
from file_server import FileServer, tar_of


@pytest.fixture
def server(tmp_path):
    """Serve five files, two of them tars, one of a megabyte; settings in data.yaml."""
    with FileServer(tmp_path / "remote") as running:
        big = np.random.default_rng(0).bytes(1 << 20)
        lines = [
            running.write("set/big.bin", big),
            running.write("set/a.tar.gz", tar_of({"train/n1/1.txt": b"one", "train.txt": b"list"})),
            running.write("set/b.tar", tar_of({"train/n1/2.txt": b"two", "train/n2/3.txt": b"3"})),
            running.write("set/part/c.txt", b"c"),
            running.write("set/empty", b""),
        ]
        lines = [line.removeprefix("set/") for line in lines]
        running.write("set/filelist.txt", ("\n".join(lines) + "\n\n").encode())
        running.write("set/meta.txt", b"five files\n")
        running.write("data.yaml", f"bos_path: {running.url}/set\n".encode())
        yield running
