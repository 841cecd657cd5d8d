"""Addresses and loggers, for scripts that start processes themselves."""

import argparse
import logging
import socket
from typing import Any

from fleetx.runtime import network


def find_free_ports(num: int) -> set[int]:
    """Return free ports of this machine."""
    return set(network.free_ports(num, ""))


def get_host_name_ip() -> tuple[str, str] | None:
    """Return this machine's name and address; None if its name has no address."""
    name = socket.gethostname()
    try:
        return name, socket.gethostbyname(socket.getfqdn(name))
    except OSError:
        return None


def get_logger(log_level: int, name: str = "root") -> logging.Logger:
    """Return a logger that writes to stderr with time, file and line."""
    logger = logging.getLogger(name)
    logger.setLevel(log_level)
    handler = logging.StreamHandler()
    form = "%(levelname)s %(asctime)s %(filename)s:%(lineno)d] %(message)s"
    handler.setFormatter(logging.Formatter(form))
    logger.addHandler(handler)
    return logger


def add_arguments(
    argname: str,
    type: Any,
    default: Any,
    help: str,
    argparser: argparse.ArgumentParser,
    **kwargs: Any,
) -> None:
    """Add an option to a parser; a bool is written as a word, such as `--flag False`."""
    kind = _truth if type is bool else type
    text = f"{help} Default: %(default)s."
    argparser.add_argument(f"--{argname}", default=default, type=kind, help=text, **kwargs)


def _truth(word: str) -> bool:
    yes, no = ("y", "yes", "t", "true", "on", "1"), ("n", "no", "f", "false", "off", "0")
    if word.lower() not in yes + no:
        raise ValueError(f"{word!r} is neither true nor false; write True or False.")
    return word.lower() in yes
