"""Helpers of jobs with parameter servers."""

from paddle.fluid.incubate.fleet.utils import hdfs
