"""Files of pretrained weights on this machine; nothing is downloaded."""

from pathlib import Path

from fleetx.data.local_files import local_download

__all__ = ["get_path_from_url", "get_weights_path_from_url", "is_url"]

WEIGHTS_HOME = str(Path("~/.cache/paddle/hapi/weights").expanduser())


def is_url(path: str) -> bool:
    """Return whether a path is a URL."""
    return path.startswith(("http://", "https://"))


def get_weights_path_from_url(url: str, md5sum: str | None = None) -> str:
    """Return the local file of weights, in the folder where Paddle keeps them."""
    return str(local_download(url, Path(WEIGHTS_HOME), md5sum))


def get_path_from_url(
    url: str,
    root_dir: str,
    md5sum: str | None = None,
    check_exist: bool = True,
    decompress: bool = True,
) -> str:
    """Return the local file of a URL; an archive unpacked beside it takes precedence."""
    return str(local_download(url, Path(root_dir), md5sum, unpacked=decompress))
