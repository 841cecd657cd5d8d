"""require_version: checks the Paddle version that a script requires."""

import re

from paddle import version


def _numbers(text: object, argument: str) -> list[int]:
    if not isinstance(text, str):
        raise TypeError(
            f"{argument} of require_version must be a str like '2.0.0', not {type(text).__name__}."
        )
    if not re.fullmatch(r"\d+(\.\d+){0,3}", text):
        raise ValueError(f"{argument} of require_version must look like '2.0.0', not {text!r}.")
    numbers = [int(part) for part in text.split(".")]
    return numbers + [0] * (4 - len(numbers))


def require_version(min_version: str, max_version: str | None = None) -> None:
    """Raise an exception unless this package's Paddle version is between the two."""
    low = _numbers(min_version, "min_version")
    high = None if max_version is None else _numbers(max_version, "max_version")
    here = _numbers(version.full_version, "full_version")
    if here < low or (high is not None and here > high):
        wanted = f">= {min_version}" + (f", <= {max_version}" if max_version else "")
        raise Exception(
            f"The script requires Paddle {wanted}, but this is FleetX with the names of Paddle "
            f"{version.full_version}."
        )
