"""Build the wheels of both distributions into dist/, and let every Python there is try them.

fleetx has two: one with compiled modules, of which one binary serves Python 3.11 and all newer ones
(the tag cp311-abi3), named by auditwheel for the oldest Linux it loads on; and one without, for all
other machines. pip takes the first where it fits. `make wheels` runs this.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from source_copy import ROOT, copy_sources

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MODULES = tuple(
    f"kernels/{name}" for name in ("_index", "_rows", "_layerwise", "_resample", "_rounded", "_shm")
)

# What an interpreter without torch and NumPy can try: the package, and the modules one by one.
TRY = """
import array, importlib.util, pathlib, sys
import fleetx

root = pathlib.Path(fleetx.__file__).parent
assert root.is_relative_to(sys.argv[1]), root
found = {}
for path in root.rglob("*.so"):
    name = path.name.split(".")[0]
    spec = importlib.util.spec_from_file_location(name, path)
    found[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found[name])
assert len(found) == int(sys.argv[2]), found
if found:
    ids, rows, fresh = (array.array("q", [7, 3, 7]) for _ in range(3))
    index = found["_index"].Index()
    assert (index.insert(ids, rows, fresh), rows.tolist()) == (2, [0, 1, 0])
    store = found["_rows"].RowStore(8)
    store.grow(2)
    store.add(rows, 0, 8, array.array("d", [1, 2, 3]), 0.5)
    store.gather(rows, 0, 8, out := array.array("d", [0, 0, 0]))
    assert out.tolist() == [2, 1, 2]
    found["_layerwise"].lars([], 0.1, 0.9, 0.1, 0.1, 0.0, True, 2)
    found["_rounded"].add_messages(0, 0, 8, [])
    out = memoryview(bytearray(48)).cast("B").cast("f", (3, 2, 2))
    pixels = memoryview(bytes(12 * [8])).cast("B", (2, 2, 3))
    found["_resample"].resample(pixels, (0, 0, 2, 2), out, False, (1, 1, 1), (0, 0, 1))
    assert [out[0, 0, 0], out[2, 1, 1]] == [8, 9]
print(fleetx.__version__)
"""


def run(*command: str | Path, cwd: Path | None = None, **more: str) -> str:
    """Run a command with the tools of this Python in its PATH; end with its output if it fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(each) for each in command],
        cwd=cwd,
        env={**os.environ, "PATH": path, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{' '.join(str(each) for each in command)} failed:\n{done.stdout}")
    return done.stdout


def build(sources: Path, target: Path) -> tuple[Path, str]:
    """Build a wheel; return it, and what was said meanwhile."""
    output = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", target, sources)
    (wheel,) = target.glob("*.whl")
    return wheel, output


def compiled_wheel(scratch: Path, target: Path) -> Path:
    """Build the wheel with compiled modules, named for the oldest Linux that it loads on."""
    wheel, output = build(copy_sources(scratch / "compiled"), scratch / "raw")
    names = zipfile.ZipFile(wheel).namelist()
    missing = [name for name in MODULES if f"fleetx/{name}.abi3.so" not in names]
    if missing:
        sys.exit(f"{output}\nWheels need a C compiler; not compiled: {', '.join(missing)}.")
    run("auditwheel", "repair", "--strip", "-w", scratch / "named", wheel)
    (named,) = (scratch / "named").glob("*.whl")
    if "-cp311-abi3-manylinux" not in named.name:
        sys.exit(f"auditwheel calls it {named.name}, which is no manylinux wheel.")
    return named.rename(target / named.name)


def pure_wheels(scratch: Path, target: Path) -> list[Path]:
    """Build the wheels without compiled modules: of fleetx, and of fleetx-paddle."""
    sources = copy_sources(scratch / "pure", "compat")
    (sources / "setup.py").unlink()  # it says nothing but how to compile
    made = []
    for number, folder in enumerate((sources, sources / "compat")):
        wheel, _ = build(folder, scratch / f"pure-{number}")
        if not wheel.name.endswith("-py3-none-any.whl"):
            sys.exit(f"{wheel.name} should be a wheel for every machine.")
        made.append(wheel.rename(target / wheel.name))
    return made


def find_python(version: str) -> str | None:
    """Return an interpreter of a version, if there is one."""
    places = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    for candidate in [shutil.which(f"python{version}"), *places]:
        asks = "import sys, pip; print('%d.%d' % sys.version_info[:2])"
        if candidate is not None:
            done = subprocess.run([candidate, "-c", asks], capture_output=True, text=True)
            if done.returncode == 0 and done.stdout.strip() == version:
                return str(candidate)
    return None


def install(python: str, wheels: list[Path], target: Path) -> Path:
    """Install wheels alone into a folder, as a Python's own pip does it."""
    flags = ["-q", "--no-deps", "--no-index", "--no-compile", "--target", target]
    run(python, "-m", "pip", "install", *flags, *wheels)
    return target


def main() -> None:
    """Build, try and list the wheels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--complete", help="a Python with all that fleetx needs, which runs it")
    arguments = parser.parse_args()
    dist = ROOT / "dist"
    dist.mkdir(exist_ok=True)
    for old in dist.glob("fleetx*.whl"):
        old.unlink()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name).resolve()
        compiled, (pure, names) = compiled_wheel(scratch, dist), pure_wheels(scratch, dist)
        pythons = {version: find_python(version) for version in PYTHONS}
        tried = [version for version in PYTHONS if pythons[version]]
        for wheel, modules in ((compiled, len(MODULES)), (pure, 0)):
            for version in tried:
                python = pythons[version]
                assert python is not None
                target = install(python, [wheel], scratch / f"{version}-{modules}")
                found = run(python, "-c", TRY, target, str(modules), PYTHONPATH=str(target))
                if found.strip() not in wheel.name:
                    sys.exit(f"Python {version} found fleetx {found} in {wheel.name}.")
            if arguments.complete:
                target = install(arguments.complete, [wheel, names], scratch / f"all-{modules}")
                use = {"cwd": scratch, "PYTHONPATH": str(target)}
                run(arguments.complete, "-m", "fleetx", "--version", **use)
                info = run(arguments.complete, "-m", "fleetx", "info", COLUMNS="200", **use)
                if info.count("slower") != len(MODULES) - modules:
                    sys.exit(f"fleetx info does not tell what {wheel.name} has:\n{info}")
                run(arguments.complete, "-c", "import paddle.fluid", **use)
    for wheel in (compiled, pure, names):
        print(f"{wheel.relative_to(ROOT)}  {wheel.stat().st_size / 1000:.0f} kB")
    print(f"Both wheels of fleetx were installed and imported by Python {', '.join(tried)}.")
    if len(tried) < len(PYTHONS):
        absent = ", ".join(version for version in PYTHONS if version not in tried)
        print(f"Not tried, since it was not found here: Python {absent}.")


if __name__ == "__main__":
    main()
