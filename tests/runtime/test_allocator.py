"""Freed blocks return to the system at once."""

import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
import sys
from pathlib import Path
from fleetx.runtime import allocator

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

if sys.argv[1] == "return" and not allocator.return_large_blocks():
    sys.exit("this C library has no mallopt")
block = bytearray(30 << 20)
del block  # the C library takes its size as the new threshold
before = resident()
kept, dropped = [], []
for _ in range(16):
    dropped.append(bytearray(10 << 20))
    kept.append(bytearray(50_000))  # lies behind it: the heap cannot shrink
del dropped
print(resident() - before)
"""


def kept_mb(how: str) -> float:
    """Return the megabytes that a process still has when it has freed 160 MB."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, how], capture_output=True, text=True, check=False
    )
    if "no mallopt" in done.stderr:
        pytest.skip("this C library has no mallopt")
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_freed_blocks_return_to_the_system() -> None:
    assert kept_mb("return") < 20
    assert kept_mb("keep") > 100  # what it is for
