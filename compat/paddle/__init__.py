"""The package name `paddle`, mapped to FleetX: static-graph programs of Paddle on PyTorch.

Names and arguments only; all behaviour is in `fleetx`. `docs/paddle-compatibility.md` lists what is
covered; anything else raises an error that links to it.
"""

from fleetx import collector as _collector
from paddle import _light

if _light.is_wanted():
    __getattr__ = _light.begin(globals())
else:
    with _collector.paused():
        from paddle._coverage import missing
        from paddle._whole import *  # noqa: F403
        from paddle._whole import __all__, __version__

    __getattr__ = missing(__name__)
