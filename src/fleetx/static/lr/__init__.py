"""Learning-rate schedulers that the training loop advances with `scheduler.step()`.

An optimizer keeps the rate in a persistable variable of its program (`_var_name`) and writes
`scheduler()` into it before every run. Rates computed by the program itself are in
`layers/learning_rate_scheduler.py`.
"""

from fleetx.exports import export_imported
from fleetx.static.lr.cycles import *  # noqa: F403
from fleetx.static.lr.decay import *  # noqa: F403
from fleetx.static.lr.scheduler import LRScheduler

export_imported(globals())
