"""The location of the data sets' files."""

from pathlib import Path

from fleetx.data.local_files import DATA_HOME as _DATA_HOME
from fleetx.data.local_files import find_file
from fleetx.data.remote_files import file_md5
from fleetx.data.sample_files import cluster_files_reader, split

__all__ = ["DATA_HOME", "cluster_files_reader", "download", "md5file", "split"]

DATA_HOME = str(Path(_DATA_HOME).expanduser())


def download(url: str, module_name: str, md5sum: str, save_name: str | None = None) -> str:
    """Return the local file of a data set; if it is missing, the error tells where to put it."""
    return str(find_file(module_name, save_name or url.split("/")[-1]))


def md5file(fname: str) -> str:
    """Return the MD5 sum of a file."""
    return file_md5(Path(fname))
