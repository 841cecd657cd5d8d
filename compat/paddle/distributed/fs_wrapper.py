"""File systems for checkpoints, as Paddle 1.8 names them."""

from fleetx.checkpoint.file_system import FS, LocalFS
from fleetx.checkpoint.hadoop_file_system import HadoopFS

__all__ = ["FS", "BDFS", "LocalFS"]


class BDFS(HadoopFS):
    """A remote file system behind the command `hadoop` of the PATH, by address and account."""

    def __init__(
        self,
        hdfs_name: str,
        hdfs_ugi: str,
        time_out: int = 20 * 60 * 1000,
        sleep_inter: int = 1000,
    ) -> None:
        settings = {"fs.default.name": hdfs_name, "hadoop.job.ugi": hdfs_ugi}
        super().__init__(None, settings, time_out, sleep_inter)
