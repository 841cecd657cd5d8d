"""Weight decay."""

from fleetx.static.regularizer import L1Decay, L2Decay
