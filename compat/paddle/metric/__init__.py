"""Measures: accuracy inside a program, and classes that sum up over batches."""

from fleetx.static.metrics.metrics_of_2x import Accuracy, Auc, Metric, Precision, Recall, accuracy
