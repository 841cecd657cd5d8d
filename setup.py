"""The small C modules; everything else is in pyproject.toml.

An installation compiles them. Each has a fallback in Python (`fleetx.kernels.compiled`), so that
one that cannot be compiled is told in one line and left out. In place:
python setup.py build_ext --inplace
"""

import glob
import shutil
import sysconfig

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, ExecError, LinkError, PlatformError

# One binary for Python 3.11 and all newer ones, but for those without the interpreter's lock.
STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")
MACROS: list[tuple[str, str | None]] = [("Py_LIMITED_API", "0x030B0000")] if STABLE else []

# Rows are the same on every processor: a product and a sum are rounded apart.
EXACT = ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra"]
# Square roots may be computed several at a time.
FAST = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra"]


FOLDER = "src/fleetx/kernels"


def _module(name: str, flags: list[str]) -> Extension:
    return Extension(
        f"fleetx.kernels.{name}",
        [f"{FOLDER}/{name}.c"],
        depends=sorted(glob.glob(f"{FOLDER}/*.h")),
        define_macros=MACROS,
        extra_compile_args=flags,
        extra_link_args=["-pthread"],
        libraries=["m"],
        py_limited_api=STABLE,
        optional=True,
    )


class BuildOptional(build_ext):
    """Compiles what can be compiled, and says in one line what cannot."""

    command_name = "build_ext"

    def run(self) -> None:
        """Build the modules; those that fail are left out and named."""
        self._failed: dict[str, list[str]] = {}
        super().run()
        for reason, names in self._failed.items():
            self.warn(f"slower code in Python runs instead of {', '.join(names)}: {reason}.")

    def build_extension(self, ext: Extension) -> None:
        """Build a module, or note why it cannot be built."""
        try:
            super().build_extension(ext)
        except (CompileError, ExecError, LinkError, PlatformError, OSError):
            program = (getattr(self.compiler, "compiler_so", None) or ["cc"])[0]
            reason = f"the C compiler {program!r} failed, see above"
            if shutil.which(program) is None:
                reason = f"there is no C compiler ({program!r} was not found)"
            self._failed.setdefault(reason, []).append(ext.name)


setup(
    ext_modules=[
        _module("_index", EXACT),
        _module("_rows", EXACT),
        _module("_layerwise", FAST),
        _module("_resample", ["-O3", "-Wall", "-Wextra"]),
        _module("_rounded", EXACT),
        _module("_shm", EXACT),
    ],
    cmdclass={"build_ext": BuildOptional},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE else {},
)
