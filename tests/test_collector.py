"""What imports create is left out of garbage collections, once."""

import subprocess
import sys

SCRIPT = """
import gc

from fleetx import collector

assert gc.get_freeze_count() == 0
with collector.paused():
    inside = gc.isenabled()
    with collector.paused():
        objects = [[] for _ in range(1000)]
    nested = gc.get_freeze_count()
first = gc.get_freeze_count()
more = [[] for _ in range(100_000)]
with collector.paused():
    pass
print(inside, gc.isenabled(), nested, first >= 1000, gc.get_freeze_count() <= first)
gc.disable()
with collector.paused():
    pass
print(gc.isenabled())
"""


def test_the_first_imports_are_left_out_of_collections() -> None:
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["False", "True", "0", "True", "True", "False"]
