"""Helpers that start real jobs under fleetrun, and a browser."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import warm_start
from waiting import LIMIT

ROOT = Path(__file__).resolve().parents[2]
WORKERS = Path(__file__).resolve().parent / "workers"
_FOREIGN = ("PADDLE_", "FLAGS_", "TORCHELASTIC_", "FLEETX_", "FORCE_COLOR", "NO_COLOR", "COLUMNS")

CHROMIUM = shutil.which("chromium")
_HEADLESS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a shell without monitoring settings, except those given."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
    return {**kept, **warm_start.variables(), **more}


def fleetrun(folder: Path, *arguments: object, **variables: str) -> subprocess.CompletedProcess:
    """Run a job in a folder to its end."""
    command = [sys.executable, "-m", "fleetx.launch", *map(str, arguments)]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


def browse(page: Path, folder: Path, *flags: str) -> subprocess.CompletedProcess:
    """Open a page in a headless browser with its own profile."""
    assert CHROMIUM is not None
    profile = folder / "profile"
    shutil.rmtree(profile, ignore_errors=True)
    command = [CHROMIUM, *_HEADLESS, f"--user-data-dir={profile}", *flags, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
