"""Metrics kept in Python over many batches, in two generations of names.

`metrics_of_1x` are those of `fluid.metrics`, `metrics_of_2x` those of `paddle.metric`;
`weighted_average` is a running average. Metrics computed inside a program are in
`layers/metric.py`.
"""
