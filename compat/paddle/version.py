"""The version of Paddle whose API this package has: 2.0.0, with `paddle.fluid` and `paddle.static`.

Scripts compare against it; FleetX's own version is `fleetx.__version__`.
"""

full_version = "2.0.0"
major = "2"
minor = "0"
patch = "0"
rc = "0"
istaged = True
commit = "unknown"
with_mkl = "OFF"


def show() -> None:
    """Print the version."""
    print(f"full_version: {full_version}\nmajor: {major}\nminor: {minor}\npatch: {patch}\nrc: {rc}")


def mkl() -> str:
    """Return whether Intel's MKL was built in."""
    return with_mkl
