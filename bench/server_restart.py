"""The restart of a server with a large table: snapshot and journal, on this machine's disk.

Writes the folder of a server as a killed one leaves it: a snapshot of rows with 16 numbers and
Adagrad's state, and a journal of pushes (200 MB; a new snapshot begins at 256 MB). Then a new
process restores it as a server does, with checksums and the replay of the log.

    python bench/server_restart.py [--rows 100] [--folder DIR]

`--rows` is in millions; 100 need 16 GB of memory and 14 GB of disk. Writes
bench/results/server_restart.json.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from record import RESULTS, write_record
from sparse_table import BATCH, DIM
from static_graph import figures, show
from table_growth import MILLION, ids_of, new_table

from fleetx.ps.server.durable_state import DurableState
from fleetx.ps.server.server_settings import ServerSettings
from fleetx.ps.server.snapshots import Durability, Storage
from fleetx.ps.server.state import ServerState
from fleetx.ps.wire.assembly import Message
from fleetx.ps.wire.messages import Header, Kind

JOURNAL = 200 << 20


class Filled(ServerState):
    """The state of a server whose table has this many rows."""

    rows = 0

    def capture(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return the state that a table with these rows would have."""
        tensors, meta = super().capture()
        tensors["table.0.ids"] = ids_of(torch.arange(self.rows))
        tensors["table.0.Param"] = torch.empty(self.rows, DIM).uniform_(-0.1, 0.1)
        tensors["table.0.Moment"] = torch.ones(self.rows, DIM)
        return tensors, meta


def write(folder: Path, rows: int) -> int:
    """Write the folder of a server; return the number of requests in its journal."""
    state = Filled(1, [new_table().spec])
    state.rows = rows
    storage = Storage(Durability(folder=folder))
    storage.recover(state)
    storage.snapshot(state, wait=True)
    grads, count = torch.randn(BATCH, DIM), 0
    while count * grads.nbytes < JOURNAL:
        count += 1
        ids = ids_of(torch.randint(rows, (BATCH,)))
        storage.append(Message(Header(Kind.PUSH, sequence=count), [(0, ids), (1, grads)]))
    storage.close()
    return count


def restore(folder: Path, rows: int, requests: int) -> None:
    """Restore the server, and print the seconds."""
    torch.set_num_threads(1)
    begun = time.perf_counter()
    found = DurableState(ServerSettings(durability=Durability(folder=folder)))
    spent = time.perf_counter() - begun
    assert len(found.state.tables[0]) == rows  # type: ignore[arg-type]
    assert found.state.applied[0] == requests
    print(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=100, help="millions of rows")
    parser.add_argument("--folder", default=None, help="where to write; needs 14 GB")
    parser.add_argument("--restore", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    rows = int(given.rows * MILLION)
    if given.restore:
        restore(Path(given.folder), rows, given.restore)
        return
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.folder or RESULTS) as name:
        requests = write(Path(name), rows)
        print(f"{rows:,} rows and {requests} pushes are written.", flush=True)
        command = [sys.executable, __file__, "--rows", str(given.rows), "--folder", name]
        done = subprocess.run(
            [*command, "--restore", str(requests)], stdout=subprocess.PIPE, text=True, check=True
        )
    spent = float(done.stdout)
    what = f"seconds to restore {rows:,} rows from snapshot and journal"
    lines = [figures(what, spent, "a minute", 60.0, 1.0, False)]
    show(lines, "Restart of a server")
    write_record("server_restart", rows=lines)


if __name__ == "__main__":
    main()
