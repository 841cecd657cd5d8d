"""Files on HDFS, and tables of parameter servers."""

from paddle.fluid.contrib.utils import hdfs_utils
from paddle.fluid.contrib.utils.hdfs_utils import HDFSClient, multi_download, multi_upload
