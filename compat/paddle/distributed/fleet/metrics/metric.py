"""Metrics over all workers."""

from fleetx.fleet.metrics import acc, auc, mae, max, min, mse, rmse, sum
