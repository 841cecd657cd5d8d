"""Looking at a run: measurements of every worker, a progress line, event files, a timeline.

`for batch in monitor.watch(loader, epochs=3): …` shows the progress of a loop. With a log folder
(fleetrun --log_dir, or FLEETX_LOG_DIR) every worker keeps its steps, and `fleetx report` draws
them on a page; FLEETX_TIMELINE=1 keeps a timeline. Where nobody asks, nothing is measured.
"""

from fleetx.monitor.progress import Progress
from fleetx.monitor.run import Settings, current, start, stop
from fleetx.monitor.watching import epochs, note, watch

__all__ = ["Progress", "Settings", "current", "epochs", "note", "start", "stop", "watch"]
