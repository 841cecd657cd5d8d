"""Found by every Python of a job that a test started with `warm_start.environment()`.

A process that is about to run a script, `-c code` or `-m module` hands it to a server that has
torch loaded already, and then only stands for it: it passes signals on and ends as the script ends.
Where no server answers Python goes on as usual. So does the launcher, which needs no torch.
"""

import os
import sys

_COLD_MODULES = ("fleetx.launch", "pip", "pytest")
# Processes of multiprocessing inherit pipes, which a server does not have.
_COLD_CODE = "from multiprocessing"


def _place_of_program() -> int:
    """Return where the program begins in the command: a script, -c or -m; 0: there is none."""
    command = sys.orig_argv
    place = 1
    while command[place : place + 1] in (["-u"], ["-W"]):
        place += 1 if command[place] == "-u" else 2
    first, second = (*command[place : place + 2], "", "")[:2]
    if first == "-m":
        return 0 if second in _COLD_MODULES else place
    if first == "-c":
        return 0 if second.startswith(_COLD_CODE) else place
    return place if first.endswith(".py") else 0


def _hand_over(folder: str, place: int) -> None:
    import json
    import signal
    import socket

    # Workers of one job come from different servers, so that their hashes differ as usual.
    number = int(os.environ.get("RANK") or os.environ.get("PADDLE_TRAINER_ID") or 0) % 2
    server = os.environ.get("FLEETX_TESTS_WARM_START_SERVER") or number
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(f"{folder}/{server}")
    except OSError:
        return
    umask = os.umask(0)
    os.umask(umask)
    request = {
        "command": sys.orig_argv[place:],
        "path": sys.path,
        "warnings": sys.warnoptions,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "umask": umask,
    }
    data = json.dumps(request).encode()
    namespaces = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in ("net", "uts")]
    socket.send_fds(connection, [len(data).to_bytes(8, "little")], [0, 1, 2, *namespaces])
    for namespace in namespaces:
        os.close(namespace)
    connection.sendall(data)
    pid = int.from_bytes(connection.recv(8, socket.MSG_WAITALL), "little")

    def forward(number: int, frame: object) -> None:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return  # it has just ended

    for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, forward)
    answer = connection.recv(8, socket.MSG_WAITALL)
    code = int.from_bytes(answer, "little", signed=True) if answer else 1
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    os._exit(code)


_folder = os.environ.get("FLEETX_TESTS_WARM_START")
if _folder:
    _place = _place_of_program()
    if _place:
        _hand_over(_folder, _place)
