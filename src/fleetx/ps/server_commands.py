"""The command `fleetx ps`: saved tables, keys, and the servers of a running job."""

from __future__ import annotations

import argparse
import dataclasses
import threading
from pathlib import Path
from typing import Any

from rich.console import Console

from fleetx.runtime.layout_folder import LayoutFolder, find_layout_folder
from fleetx.runtime.server_support import FSYNC_POLICIES, read_keys

_POLL = 0.1


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


def add(commands: Any) -> None:
    """Add `fleetx ps` to the commands."""
    servers = commands.add_parser("ps", help="tables of parameter servers")
    actions = servers.add_subparsers(required=True, metavar="ACTION")
    export = actions.add_parser("export", help="write a saved table for other programs")
    export.add_argument("table", type=Path, help="the folder of a saved table")
    export.add_argument("target", type=Path, help="the file to write; for text, a folder")
    export.add_argument(
        "--format", choices=("text", "parquet", "npz"), default="text", help="default: text"
    )
    export.add_argument("--state", action="store_true", help="write the optimizer's state too")
    export.add_argument(
        "--blocks", type=_positive, default=1, help="number of Paddle servers to write text for"
    )
    export.set_defaults(command=_ps_export)
    keys = actions.add_parser("keys", help="generate the keys of a job, for fleetrun --server_keys")
    keys.add_argument("file", type=Path, help="the new file; copy it to every machine of the job")
    keys.set_defaults(command=_ps_keys)
    readers = actions.add_parser(
        "reader_keys", help="write the keys with which fleetx serve may look up rows of a job"
    )
    readers.add_argument("keys", type=Path, help="the job's keys, of `fleetx ps keys`")
    readers.add_argument("file", type=Path, help="the new file; it grants read access only")
    readers.set_defaults(command=_ps_reader_keys)
    repair = actions.add_parser("repair", help="truncate a server's damaged log at the damage")
    repair.add_argument("folder", type=Path, help="the folder of one server, or of all of a job")
    repair.set_defaults(command=_ps_repair)
    resize = actions.add_parser("resize", help="change the number of servers of a running job")
    resize.add_argument("folder", type=Path, help="the job's --log_dir or --server_state")
    resize.add_argument("servers", type=_positive, help="the number of servers to train with")
    resize.set_defaults(command=_ps_resize)
    _add_replace(actions)


def _add_replace(actions: Any) -> None:
    replace = actions.add_parser(
        "replace", help="run a lost server on this machine, from its saved state"
    )
    replace.add_argument("folder", type=Path, help="the job's --server_state, as workers see it")
    replace.add_argument("server", type=int, help="the index of the lost server")
    replace.add_argument("address", help="HOST:PORT at which workers reach this machine")
    replace.add_argument("--server_keys", type=Path, metavar="FILE", help="the job's keys")
    replace.add_argument("--server_insecure", action="store_true", help="the job has no keys")
    replace.add_argument("--server_fsync", default="none", choices=FSYNC_POLICIES)
    replace.add_argument(
        "--load_from", metavar="DIR", help="the argument of fleet.init_server in the script"
    )
    replace.set_defaults(command=_ps_replace)


def _ps_keys(arguments: argparse.Namespace, console: Console) -> int:
    from fleetx.ps.wire.security import make_keys
    from fleetx.runtime.server_support import write_keys

    write_keys(arguments.file, make_keys().to_dict())
    console.print(f"{arguments.file}: keys of a new job, for its user only", markup=False)
    return 0


def _ps_reader_keys(arguments: argparse.Namespace, console: Console) -> int:
    from fleetx.ps.wire.security import JobKeys
    from fleetx.runtime.server_support import write_keys

    keys = JobKeys.from_dict(read_keys(arguments.keys, "KEYS")).for_readers()
    write_keys(arguments.file, dataclasses.asdict(keys))
    console.print(f"{arguments.file}: keys to look up rows, and nothing else", markup=False)
    return 0


def _ps_repair(arguments: argparse.Namespace, console: Console) -> int:
    from fleetx.ps.server.snapshots import folders_of_servers, repair

    for folder in folders_of_servers(arguments.folder):
        found = repair(folder)
        said = (
            "is intact" if found is None else f"{found[0].problem} The rest is now in {found[1]}."
        )
        console.print(f"{folder}: {said}", markup=False, highlight=False, soft_wrap=True)
    return 0


def _ps_export(arguments: argparse.Namespace, console: Console) -> int:
    from fleetx.ps.tables.table_export import export_table

    count = export_table(
        arguments.table,
        arguments.target,
        format=arguments.format,
        with_state=arguments.state,
        blocks=arguments.blocks,
    )
    console.print(f"{arguments.target}: {count:,} rows", markup=False, soft_wrap=True)
    return 0


def _ps_resize(arguments: argparse.Namespace, console: Console) -> int:
    files = find_layout_folder(arguments.folder)
    before = files.read()
    assert before is not None
    files.ask_for(arguments.servers)
    pause = threading.Event()
    while (now := files.read()) is not None and now.generation == before.generation:
        if (reason := files.refusal()) is not None:
            raise OSError(reason)
        pause.wait(_POLL)
    if now is None:
        raise OSError("The job has ended before its tables could move.")
    console.print(f"The tables are on {len(now.endpoints)} server(s) now.", markup=False)
    return 0


def _ps_replace(arguments: argparse.Namespace, console: Console) -> int:
    from fleetx.ps.server.server import run_server
    from fleetx.ps.server.server_settings import ServerSettings
    from fleetx.ps.server.snapshots import Durability
    from fleetx.ps.wire.security import JobKeys

    files, index = LayoutFolder(arguments.folder), arguments.server
    layout = files.read()
    state = files.state_of(layout.generation, index) if layout is not None else files.path
    if layout is None or not (state / "lock").is_file():
        raise FileNotFoundError(
            f"{files.path} does not hold the state of server {index} of a running job: name its "
            "--server_state, on a disk that this machine shares or to which it was copied."
        )
    keys = None
    if arguments.server_keys is not None:
        keys = JobKeys.from_dict(read_keys(arguments.server_keys, "--server_keys"))
    settings = ServerSettings(
        workers=layout.workers,
        index=index,
        servers=len(layout.endpoints),
        keys=keys,
        allow_insecure=arguments.server_insecure,
        durability=Durability(folder=state, fsync=arguments.server_fsync),
        load_from=arguments.load_from,
    )

    def tell(endpoint: str) -> None:
        files.move_address(index, endpoint)
        console.print(f"Server {index} is at {endpoint} now.", markup=False)

    run_server(arguments.address, settings, when_ready=tell)
    return 0
