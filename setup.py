"""The small C modules; everything else is in pyproject.toml.

An installation compiles them. To do it in place: python setup.py build_ext --inplace
"""

from setuptools import Extension, setup


def _module(name: str) -> Extension:
    return Extension(
        f"fleetx.ps.{name}",
        [f"src/fleetx/ps/{name}.c"],
        depends=["src/fleetx/ps/_common.h"],
        extra_compile_args=["-O3", "-Wall", "-Wextra"],
    )


setup(
    ext_modules=[
        _module("_index"),
        _module("_rows"),
        Extension(
            "fleetx.static.ops._layerwise",
            ["src/fleetx/static/ops/_layerwise.c"],
            # Square roots may then be computed several at a time.
            extra_compile_args=["-O3", "-fno-math-errno", "-Wall", "-Wextra"],
        ),
        Extension(
            "fleetx.data._resample",
            ["src/fleetx/data/_resample.c"],
            extra_compile_args=["-O3", "-Wall", "-Wextra"],
        ),
    ]
)
