"""A barrier of workers through a folder on HDFS."""

from fleetx.paddle_rules.hadoop_barrier import check_all_trainers_ready
