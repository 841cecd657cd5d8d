"""The command line of a training script: learning rate, momentum, batch size and the like."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

# (option, type, default, description)
_OPTIONS = (
    ("lr", float, 0.0001, "learning rate"),
    ("momentum", float, 0.9, "momentum"),
    ("beta1", float, 0.9, "decay of Adam's first moment"),
    ("beta2", float, 0.997, "decay of Adam's second moment"),
    ("batch_size", int, 32, "samples per step and worker"),
    ("epsilon", float, 1e-9, "the epsilon in Adam's denominator"),
    ("download_config", str, None, "YAML file with the source of a download"),
)


def parse_train_configs(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the options of a training script, by default from the command line."""
    parser = argparse.ArgumentParser(
        description="Options of a training script.", allow_abbrev=False
    )
    for name, kind, default, meaning in _OPTIONS:
        parser.add_argument(
            f"--{name}", type=kind, default=default, help=f"{meaning} (default: {default})"
        )
    return parser.parse_args(arguments)
