"""How often ops occur in a program."""

from fleetx.static.inspection.statistics import op_freq_statistic
