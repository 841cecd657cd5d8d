"""The memory of a table in its own process: little more than that of the numbers in its rows."""

import subprocess
import sys

import pytest

from compiled_or_not import need_compiled_modules

DIM = 16
AT_ONCE = 1 << 14  # as many ids as a batch of a worker has
ROWS = 1 << 20

GROW = """
import resource
import sys
from pathlib import Path

import torch

from fleetx.ps.tables.sparse_table import SparseTable
from fleetx.ps.tables.table_spec import InitializerSpec, OptimizerSpec, SparseTableSpec

DIM, ROWS, AT_ONCE = (int(given) for given in sys.argv[1:])
torch.set_num_threads(1)


def new_table():
    uniform = InitializerSpec(kind="uniform", settings={"low": -0.1, "high": 0.1})
    return SparseTable(
        SparseTableSpec(
            name="t", dim=DIM, initializer=uniform, optimizer=OptimizerSpec(kind="adagrad")
        )
    )


def push(table, rows):
    for start in range(len(table), rows, AT_ONCE):
        ids = torch.arange(start, start + AT_ONCE) * 0x5851F42D4C957F2D
        table.push(ids, torch.ones(AT_ONCE, DIM))


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


push(new_table(), AT_ONCE)  # loads what the first use of a table loads
table, before = new_table(), resident()
push(table, ROWS)
print(resident() - before)
"""


@pytest.mark.slow
def test_a_table_takes_little_more_than_its_numbers():
    need_compiled_modules()
    done = subprocess.run(
        [sys.executable, "-c", GROW, str(DIM), str(ROWS), str(AT_ONCE)],
        check=True,
        capture_output=True,
        text=True,
    )
    numbers = ROWS * 2 * DIM * 4
    assert numbers < int(done.stdout) < 1.2 * numbers
