"""The settings that a process receives from the launcher through environment variables.

The variables are read only here; all other code calls these functions.
"""

from __future__ import annotations

import os

from fleetx.runtime.worker_environment import detect

_PIPE_COMMAND = "FLEETX_PIPE_COMMAND"
STATE_MEMORY = "FLEETX_STATE_MEMORY"
SHARED_MEMORY = "FLEETX_SHARED_MEMORY"


def worker_index() -> int:
    """Return the rank of this worker (0 without a launcher)."""
    if _text("PADDLE_TRAINER_ID"):
        return _count("PADDLE_TRAINER_ID", default=0, least=0)
    return detect().rank


def worker_num() -> int:
    """Return the number of workers (1 without a launcher)."""
    if _text("PADDLE_TRAINERS_NUM"):
        return _count("PADDLE_TRAINERS_NUM", default=1, least=1)
    return detect().world_size


def worker_endpoints() -> list[str]:
    """Return the addresses 'ip:port' of all workers (PADDLE_TRAINER_ENDPOINTS; empty if unset)."""
    return [part for part in _text("PADDLE_TRAINER_ENDPOINTS").split(",") if part]


def current_endpoint() -> str:
    """Return this worker's address (PADDLE_CURRENT_ENDPOINT; empty without a launcher)."""
    return _text("PADDLE_CURRENT_ENDPOINT")


def selected_device() -> int:
    """Return the index of the device selected for this worker (FLAGS_selected_gpus; 0)."""
    first = _text("FLAGS_selected_gpus").split(",")[0]
    return int(first) if first.isdecimal() else 0


def cpu_num() -> int:
    """Return the number of batches per step of a data-parallel CPU program (CPU_NUM; 1)."""
    return _count("CPU_NUM", default=1, least=1)


def paddle_flag(name: str, default: str) -> str:
    """Return the value of Paddle's flag FLAGS_<name> as text."""
    return _text(f"FLAGS_{name}") or default


def malloc_threshold() -> str:
    """Return the size from which the C library maps blocks, if the user has set it; else ''."""
    return _text("MALLOC_MMAP_THRESHOLD_")


def heartbeat_file() -> str:
    """Return the file in which fleetrun expects this worker's heartbeat, or ''."""
    return _text("FLEETX_HEARTBEAT")


def backend() -> str:
    """Return the collective library that `fleetrun --backend` names, or ''."""
    return _text("PADDLE_DISTRI_BACKEND").lower()


def may_share_memory() -> bool:
    """Return whether fleetrun lets CPU workers use shared memory: without --backend."""
    return _text(SHARED_MEMORY) == "1"


def is_one_machine() -> bool:
    """Return whether fleetrun has started all workers of the job on this machine."""
    return _text("PADDLE_NNODES") == "1"


def state_memory() -> list[str]:
    """Return the files in which fleetrun keeps the newest state for a restart, own ones first."""
    return [path for path in _text(STATE_MEMORY).split(":") if path]


def log_dir() -> str:
    """Return the folder for measurements (FLEETX_LOG_DIR, set by fleetrun --log_dir), or ''."""
    return _text("FLEETX_LOG_DIR")


def run_name() -> str:
    """Return the identifier of this job among others that used the same folder, or ''."""
    return _text("FLEETX_RUN")


def monitor_switch() -> str:
    """Return '1' or '0' if FLEETX_MONITOR switches measuring on or off, else ''."""
    return _choice("FLEETX_MONITOR", ("", "0", "1"))


def progress_switch() -> str:
    """Return '1' or '0' if FLEETX_PROGRESS switches the progress line on or off, else ''."""
    return _choice("FLEETX_PROGRESS", ("", "0", "1"))


def tensorboard_switch() -> bool:
    """Return whether FLEETX_TENSORBOARD enables event files."""
    return _choice("FLEETX_TENSORBOARD", ("", "0", "1")) == "1"


def timeline() -> str:
    """Return '1' or the folder if FLEETX_TIMELINE enables a timeline, else ''."""
    text = _text("FLEETX_TIMELINE")
    return "" if text == "0" else text


def timeline_steps() -> int:
    """Return the number of steps in a timeline (FLEETX_TIMELINE_STEPS; 100)."""
    return _count("FLEETX_TIMELINE_STEPS", default=100, least=1)


def plotting_is_off() -> bool:
    """Return whether `Ploter` draws nothing: DISABLE_PLOT=True."""
    return _text("DISABLE_PLOT") == "True"


def is_pipe_command() -> bool:
    """Return whether a dataset has started this process, to convert its files."""
    return _text(_PIPE_COMMAND) == "1"


def of_pipe_command() -> dict[str, str]:
    """Return the environment of a process that converts the files of a dataset."""
    return {**os.environ, _PIPE_COMMAND: "1"}


def _text(variable: str) -> str:
    return os.environ.get(variable, "").strip()


def _choice(variable: str, allowed: tuple[str, ...]) -> str:
    text = _text(variable)
    if text not in allowed:
        words = " or ".join(word for word in allowed if word)
        raise ValueError(f"The environment variable {variable} must be {words}, not {text!r}.")
    return text


def _count(variable: str, default: int, least: int) -> int:
    text = _text(variable)
    if not text:
        return default
    if not text.isdecimal() or int(text) < least:
        raise ValueError(
            f"The environment variable {variable} must be a whole number of at least {least}, "
            f"but it is {text!r}."
        )
    return int(text)


def hadoop_settings() -> tuple[str, str, str]:
    """Return the folder of Hadoop, the address of its file system and the account, '' if unset."""
    home, name, account = (os.environ.get(n, "") for n in ("HADOOP_HOME", "FS_NAME", "FS_UGI"))
    return home, name, account


def barrier_seconds() -> int:
    """Return how long a worker waits at a barrier through files (FLEETX_BARRIER_SECONDS; 6 h)."""
    return _count("FLEETX_BARRIER_SECONDS", default=6 * 3600, least=1)
