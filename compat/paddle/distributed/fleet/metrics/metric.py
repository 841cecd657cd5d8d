"""Metrics over all workers."""

from fleetx.fleet.metrics import acc, auc, mae, max, min, mse, rmse, sum
from paddle._coverage import missing

__all__ = ["acc", "auc", "mae", "max", "min", "mse", "rmse", "sum"]

__getattr__ = missing(__name__)
