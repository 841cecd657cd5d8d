"""--server_wait: how long workers wait for a lost server."""

from collections.abc import Callable
from pathlib import Path

from launching import Launch

from ports import consecutive_ports


def test_workers_are_told(
    fleetrun: Callable[..., Launch], script: Callable[..., Path], tmp_path: Path
) -> None:
    script("import os\nprint(os.environ.get('FLEETX_SERVER_WAIT'))\n")
    ports = consecutive_ports(2)
    run = fleetrun(
        f"--servers=127.0.0.1:{ports}",
        f"--workers=127.0.0.1:{ports + 1}",
        "--server_wait=2.5",
        "train.py",
    )
    assert run.end() == 0, run.stderr
    assert (tmp_path / "log/workerlog.0").read_text() == "2.5\n"


def test_a_bad_value_is_refused(
    fleetrun: Callable[..., Launch], script: Callable[..., Path]
) -> None:
    script("")
    run = fleetrun("--server_num=1", "--worker_num=1", "--server_wait=-1", "train.py")
    assert run.end() == 2
    assert "--server_wait must be more than 0 seconds, not -1." in run.stderr
