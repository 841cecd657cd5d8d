"""Metrics over all workers."""

from paddle.distributed.fleet.metrics import metric
from paddle.distributed.fleet.metrics.metric import acc, auc, mae, max, min, mse, rmse, sum
