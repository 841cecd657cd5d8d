"""A copy of the sources for builds and tests, so that builds leave nothing in the work tree."""

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")


def copy_sources(target: Path, *folders: str) -> Path:
    """Copy the files of an installation, `src` and other folders to `target`; return it."""
    made = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info", "build", "output")
    for folder in ("src", *folders):
        shutil.copytree(ROOT / folder, target / folder, ignore=made)
    for name in _FILES:
        shutil.copy(ROOT / name, target)
    return target
