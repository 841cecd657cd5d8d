"""Two workers that train while their checkpoints are written, and errors that all of them see.

fleetrun save_in_background.py FOLDER
"""

import sys
from pathlib import Path

import torch

from fleetx import comm, fleet

folder = Path(sys.argv[1])
fleet.init(is_collective=True)
rank = fleet.worker_index()
state = {"w": torch.zeros(1000), "rank": rank}
for step in range(1, 6):
    state["w"] += comm.all_reduce(torch.ones(1000))
    fleet.save_checkpoint(str(folder / "all"), exact=True, blocking=False, state=state, step=step)
    for _ in range(5):  # collectives of training, while others are under way in the background
        assert comm.all_reduce(torch.tensor([float(step)])).item() == 2 * step
print("written", Path(fleet.wait_for_checkpoint()).name, flush=True)
found = fleet.load_checkpoint(str(folder / "all"))
assert found["step"] == 5
assert found["state"]["rank"] == rank
assert torch.equal(found["state"]["w"], torch.full((1000,), 10.0))

# What one worker cannot save is an error on both, at the next call that waits.
bad = object() if rank == 1 else 1
fleet.save_checkpoint(str(folder / "bad"), exact=True, blocking=False, value=bad)
try:
    fleet.save_checkpoint(str(folder / "bad"), exact=True, blocking=False, value=1)
except (RuntimeError, TypeError) as error:
    (folder / f"error.{rank}").write_text(f"{type(error).__name__}: {error}")
# The first worker writes alone what is the same on all; the end of the script waits for it.
fleet.save_checkpoint(str(folder / "one"), blocking=False, value=7)
