"""Metrics: accuracy inside a program, and classes that accumulate over batches."""

from fleetx.static.metrics.metrics_of_2x import Accuracy, Auc, Metric, Precision, Recall, accuracy
