"""File systems for checkpoints."""

from fleetx.checkpoint.file_system import FS, FSFileExistsError, FSFileNotExistsError, LocalFS
from fleetx.checkpoint.hadoop_file_system import ExecuteError, FSShellCmdAborted, FSTimeOut
from fleetx.checkpoint.hadoop_file_system import HadoopFS as HDFSClient
