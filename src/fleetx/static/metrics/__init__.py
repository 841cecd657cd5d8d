"""Metrics accumulated in Python over batches, with the APIs of 1.x and 2.x.

`metrics_of_1x` are those of `fluid.metrics`, `metrics_of_2x` those of `paddle.metric`;
`weighted_average` is a running average. Metrics computed inside a program are in
`layers/metric.py`.
"""
