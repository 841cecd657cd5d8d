"""Files on HDFS, through the command `hadoop`."""

from fleetx.checkpoint.hadoop_file_system import HadoopFSOf18 as HDFSClient
