"""Run the tests of the compiled modules under AddressSanitizer and UndefinedBehaviorSanitizer.

The modules are compiled in a temporary copy of the sources. A finding of a sanitizer ends the tests
with its report. Python allocates with malloc, so that every object has its own guards; leaks of the
interpreter itself are ignored. `make sanitize` runs this.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from source_copy import copy_sources

FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g"
TESTS = {
    "tests/comm/test_shared_memory.py": "not job and not gloo and not killed",
    "tests/kernels/test_index.py": "",
    "tests/kernels/test_rows.py": "",
    "tests/kernels/test_fallbacks.py": "",
    "tests/kernels/test_rounded_blocks.py": "",
    "tests/ps/tables/test_sparse_table.py": "compiled",
    "tests/data/imagenet/test_imagenet_augment.py": "resampl or the_same or pillows",
    "tests/techniques/test_large_batch.py": "double_precision",
}
LOADED = """
from fleetx.kernels import _index, _layerwise, _resample, _rounded, _rows, _shm
for module in (_index, _layerwise, _resample, _rounded, _rows, _shm):
    print(module.__file__)
"""


def compile_modules(sources: Path, compiler: str) -> None:
    """Compile the modules in place with the sanitizers."""
    done = subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=sources,
        env={**os.environ, "CC": compiler, "CFLAGS": FLAGS, "LDFLAGS": FLAGS},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode or "slower code in Python" in done.stdout:
        sys.exit(f"The modules could not be compiled:\n{done.stdout}")


def check_loaded(sources: Path, environment: dict[str, str]) -> None:
    """Check that the tests will load the instrumented modules."""
    found = subprocess.run(
        [sys.executable, "-c", LOADED], env=environment, check=True, capture_output=True, text=True
    ).stdout.split()
    for module in found:
        content = Path(module).read_bytes()
        if sources not in Path(module).parents or b"__asan_" not in content:
            sys.exit(f"{module} is not watched by a sanitizer.")


def main() -> int:
    """Compile, run the tests, and return their exit status."""
    compiler = shutil.which(os.environ.get("CC", "gcc"))
    if compiler is None:
        sys.exit("make sanitize needs gcc with its sanitizers, and there is no gcc.")
    runtime = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    with tempfile.TemporaryDirectory() as name:
        sources = copy_sources(Path(name).resolve(), "tests")
        compile_modules(sources, compiler)
        environment = {
            **os.environ,
            "LD_PRELOAD": " ".join(runtime),
            "ASAN_OPTIONS": "detect_leaks=0:strict_init_order=1:detect_stack_use_after_return=1",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
            "PYTHONMALLOC": "malloc",
            "PYTHONPATH": str(sources / "src"),
            "OMP_NUM_THREADS": "1",
        }
        check_loaded(sources, environment)
        for path, chosen in TESTS.items():
            done = subprocess.run(
                # Not captured: a report that ends the process would be lost with what is captured.
                [sys.executable, "-m", "pytest", "-q", "-x", "-s", "-p", "no:cacheprovider"]
                + ["-o", "timeout=600", "-k", chosen, path],
                cwd=sources,
                env=environment,
            )
            if done.returncode:
                return done.returncode
    print("No finding of AddressSanitizer or UndefinedBehaviorSanitizer.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
