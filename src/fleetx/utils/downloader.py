"""`Downloader`: downloads a data set described by a YAML file to every machine of a job.

Of several workers on one machine, the first one downloads and the others wait for its files;
workers that train together continue when all have their files, and fail together if one fails.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from fleetx.data.download import download
from fleetx.data.remote_files import RemoteFolder
from fleetx.runtime import membership
from fleetx.utils.hadoop import hadoop_options

# Workers that wait for a long download communicate at least this often (in seconds), since
# collectives time out.
_SIGN_OF_LIFE = 20.0


class Downloader:
    """Downloader of data sets, see `download_from_bos`."""

    def download_from_bos(
        self,
        fs_yaml: str | None = None,
        local_path: str = "./",
        shard_num: int = -1,
        shard_id: int = -1,
        process_num: int = 10,
    ) -> str:
        """Download the folder given by `bos_path` (or `data_path`) of a YAML file.

        Args:
            fs_yaml: path or URL of the YAML file (.yml, .yaml).
            local_path: the folder to download to, which is returned.
            shard_num: the number of shards of the files; -1 downloads all.
            shard_id: the shard of this machine, from 0.
            process_num: the number of files fetched at the same time.
        """
        settings = read_settings(fs_yaml)
        address = settings.get("bos_path") or settings.get("data_path")
        if not isinstance(address, str):
            raise ValueError(f"{fs_yaml} has no bos_path: the address of the folder to download.")
        source = RemoteFolder(address)
        return self._download(source, local_path, shard_num, shard_id, process_num)

    def download_from_hdfs(
        self,
        fs_yaml: str | None = None,
        local_path: str = "./",
        shard_num: int = -1,
        shard_id: int = -1,
        process_num: int = 10,
    ) -> str:
        """Download the folder `data_path` of the file system `fs.default.name` of a YAML file.

        Other keys: hadoop.job.ugi ("user,password"), hadoop_home, java_home. The arguments are
        those of `download_from_bos`.
        """
        settings = read_settings(fs_yaml)
        for key in ("data_path", "fs.default.name"):
            if not isinstance(settings.get(key), str):
                raise ValueError(f"{fs_yaml} has no {key}, which download_from_hdfs needs.")
        host, path = settings["fs.default.name"].rstrip("/"), settings["data_path"]
        address = path if "://" in path else f"{host}/{path.lstrip('/')}"
        source = RemoteFolder(address, **hadoop_options(settings, address))
        return self._download(source, local_path, shard_num, shard_id, process_num)

    def _download(
        self, source: RemoteFolder, local_path: str, num: int, index: int, threads: int
    ) -> str:
        if not _is_server():
            together(
                lambda: download(
                    source, local_path, shard_num=num, shard_id=index, process_num=threads
                )
            )
        return local_path


def read_settings(fs_yaml: str | None) -> dict[str, Any]:
    """Return the content of a YAML file, local or remote."""
    if not fs_yaml or not str(fs_yaml).endswith((".yml", ".yaml")):
        raise ValueError(
            f"fs_yaml must be the path or address of a .yml or .yaml file, not {fs_yaml!r}."
        )
    try:
        import yaml
    except ImportError as error:
        raise ModuleNotFoundError(
            "Reading the settings of a download needs PyYAML: pip install 'fleetx[download]'."
        ) from error
    folder, _, name = str(fs_yaml).rpartition("/")
    if "://" in folder:
        content = RemoteFolder(folder).read(name)
    elif Path(fs_yaml).is_file():
        content = Path(fs_yaml).read_bytes()
    else:
        raise FileNotFoundError(f"There is no file {fs_yaml} with the settings of the download.")
    try:
        settings = yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise ValueError(f"{fs_yaml} is not YAML: {error}") from error
    if not isinstance(settings, dict):
        raise ValueError(f"{fs_yaml} has no keys such as 'bos_path: https://host/folder'.")
    return settings


def together(work: Callable[[], object]) -> None:
    """Run work on this worker, and return when all workers of the job have finished theirs.

    If one of them fails, all do: the failing one with its error, the others with a reference to it.
    """
    from fleetx import comm  # imports torch

    if not comm.is_connected():
        work()
        return
    with ThreadPoolExecutor(1, thread_name_prefix="fleetx-download") as pool:
        _wait_for_all(pool.submit(work))


def _wait_for_all(own: Future[object]) -> None:
    import torch

    from fleetx import comm

    all_are_done = False
    while not all_are_done:
        wait([own], timeout=_SIGN_OF_LIFE)
        is_done = own.done()
        failed = comm.rank() + 1 if is_done and own.exception() is not None else 0
        runs, failed = comm.all_reduce(torch.tensor([not is_done, failed]).long(), "max").tolist()
        if failed and not (is_done and own.exception()):
            raise RuntimeError(
                f"worker {failed - 1} failed to download its data, so this one stops too; "
                f"see the log of worker {failed - 1}."
            )
        all_are_done = bool(failed) or not runs
    own.result()


def _is_server() -> bool:
    place = membership.own()
    return place is not None and place.is_server()
