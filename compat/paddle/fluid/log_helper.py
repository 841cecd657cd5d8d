"""Loggers with a format of their own."""

import logging


def get_logger(name: str, level: int, fmt: str | None = None) -> logging.Logger:
    """Return a logger that writes to stderr and does not propagate to the root logger."""
    logger = logging.getLogger(name)
    logger.setLevel(level)
    handler = logging.StreamHandler()
    if fmt:
        handler.setFormatter(logging.Formatter(fmt))
    logger.addHandler(handler)
    logger.propagate = False
    return logger
