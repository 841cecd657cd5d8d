"""Layers: functions that append ops to the default main program and return Variables."""

# One line per module, each with an `__all__`.
