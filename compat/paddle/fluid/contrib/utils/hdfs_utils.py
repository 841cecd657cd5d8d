"""Files on HDFS, through the command `hadoop`."""

from fleetx.checkpoint.hadoop_file_system import HadoopFSOf18 as HDFSClient
from fleetx.checkpoint.hadoop_file_system import multi_download, multi_upload
