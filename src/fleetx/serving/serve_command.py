"""`fleetx serve MODEL`: load a saved model and serve it over HTTP until stopped."""

from __future__ import annotations

import argparse
import errno
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from fleetx import collector
from fleetx.checkpoint.file_errors import FormatError
from fleetx.runtime.argument_types import count, within

if TYPE_CHECKING:
    from fleetx.serving.table_options import TableOptions

_BACKLOG = 2048
_SWITCH_SECONDS = 0.00005
_WATCH_SECONDS, _ROW_SECONDS, _ROW_AGE_SECONDS = 1.0, 2.0, 1.0


def add(commands: Any) -> None:
    """Add the command to those of `fleetx`."""
    serve = commands.add_parser(
        "serve",
        help="serve a saved inference model over HTTP",
        description="Serves a saved inference model over HTTP: POST /v1/predict, GET /docs.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    serve.add_argument(
        "model",
        type=Path,
        help="a folder with one model, a __model__, .pdmodel, .pt2 or .onnx file, or its prefix",
    )
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on")
    serve.add_argument("--port", type=_port, default=8000, help="0 selects and prints a free port")
    serve.add_argument("--max_batch", type=count, default=32, help="rows computed at a time")
    serve.add_argument(
        "--max_delay_ms", type=_milliseconds, default=2.0, help="maximum wait for other requests"
    )
    serve.add_argument("--max_queue", type=count, default=256, help="more requests get a 503")
    serve.add_argument("--max_body_mb", type=count, default=64, help="limit of a request's body")
    serve.add_argument(
        "--max_bodies_mb", type=count, default=256, help="limit of all bodies in progress"
    )
    serve.add_argument(
        "--run_seconds", type=_seconds, default=60.0, help="limit of the time of a batch"
    )
    serve.add_argument(
        "--max_memory_mb",
        type=_count_or_none,
        help="limit of the server's memory, beyond which requests fail; 0 for none; default: the "
        "memory of the loaded model plus half of the free memory",
    )
    serve.add_argument("--threads", type=count, help="threads that compute a batch")
    serve.add_argument("--api_key_file", type=Path, help="file of accepted API keys, one per line")
    serve.add_argument(
        "--version", type=_version, help="name of the model's version; default: from its checksum"
    )
    serve.add_argument(
        "--watch",
        action="store_true",
        help="MODEL is a folder of numbered versions: serve the highest, and newer ones as they "
        "appear",
    )
    serve.add_argument(
        "--watch_seconds",
        type=_seconds,
        help=f"polling interval of --watch (default {_WATCH_SECONDS:g})",
    )
    _add_tables(serve)
    serve.set_defaults(command=run)


def _add_tables(serve: argparse.ArgumentParser) -> None:
    serve.add_argument(
        "--servers",
        metavar="ADDRESSES|DIR",
        help="parameter servers with the tables that are not beside the model: HOST:PORT,…, or the "
        "--log_dir or --server_state of a running job",
    )
    serve.add_argument("--reader_keys", type=Path, help="file of `fleetx ps reader_keys`")
    serve.add_argument(
        "--server_insecure", action="store_true", help="the parameter servers have no keys"
    )
    serve.add_argument(
        "--row_seconds",
        type=_seconds,
        help=f"limit of a look-up on servers (else {_ROW_SECONDS:g})",
    )
    serve.add_argument(
        "--row_age_seconds",
        type=_age,
        help=f"how long a row of a server may be cached (default {_ROW_AGE_SECONDS:g}); 0: not at "
        "all",
    )
    serve.add_argument(
        "--cache_mb",
        type=_count_or_none,
        help="cache for the most recent rows of each table; 0 for none; default: 64 for rows on "
        "servers, none for mapped ones",
    )


_port = within(int, lambda value: 0 <= value <= 65535, "a port: 0 to 65535")
_seconds = within(float, lambda value: 0 < value <= 86_400, "a time of up to 86400 seconds")
_milliseconds = within(
    float, lambda value: 0 <= value <= 60_000, "a time from 0 to 60000 milliseconds"
)


def _count_or_none(text: str) -> int:
    return 0 if text == "0" else count(text)


def _age(text: str) -> float:
    return 0.0 if text == "0" else _seconds(text)


def _version(text: str) -> str:
    from fleetx.serving.model import check_version

    try:
        return check_version(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Serve until SIGTERM or SIGINT, and then answer the accepted requests."""
    try:
        import httptools  # noqa: F401
        import uvicorn
        import uvloop  # noqa: F401

        from fleetx.serving.app import create_app
        from fleetx.serving.connections import limited_protocol
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"fleetx serve needs the package {error.name!r}: pip install 'fleetx[serve]'."
        ) from error
    from fleetx.serving.engines import prepare_engine
    from fleetx.serving.memory_limit import limit_memory
    from fleetx.serving.model import load_model
    from fleetx.serving.model_files import find_model
    from fleetx.serving.serve_settings import ServeSettings, read_keys
    from fleetx.serving.versions import Versions, newest_version

    if arguments.watch and arguments.version is not None:
        raise FormatError(
            f"--version {arguments.version}",
            "names one model, but with --watch the model changes; omit one of them.",
        )
    if arguments.watch_seconds is not None and not arguments.watch:
        raise FormatError(
            f"--watch_seconds {arguments.watch_seconds:g}",
            "says how often --watch looks for new versions: give both, or leave it out.",
        )
    load = partial(
        load_model,
        version=arguments.version,
        threads=arguments.threads,
        tables=_table_options(arguments),
    )
    versions = None
    if arguments.watch:
        versions = Versions(arguments.model, load, arguments.watch_seconds or _WATCH_SECONDS)
    settings = ServeSettings(
        max_batch=arguments.max_batch,
        max_delay=arguments.max_delay_ms / 1000,
        max_body=arguments.max_body_mb << 20,
        max_queue=arguments.max_queue,
        max_bodies=max(arguments.max_bodies_mb, arguments.max_body_mb) << 20,
        run_seconds=arguments.run_seconds,
        api_keys=read_keys(arguments.api_key_file) if arguments.api_key_file else (),
    )
    given = None if arguments.max_memory_mb is None else arguments.max_memory_mb << 20
    limit = limit_memory(given) if given is not None else None
    with _listen(arguments.host, arguments.port) as listener:
        if versions is None:
            model = load(arguments.model)
            collector.leave_out_all()
        else:
            # A replaced model must be garbage-collected: only imports are excluded.
            prepare_engine(find_model(newest_version(arguments.model)))
            collector.leave_out_all()
            model = versions.first()
        if given is None:
            limit = limit_memory(None)
        config = uvicorn.Config(
            create_app(model, settings, versions),
            loop="uvloop",
            http=limited_protocol(settings),
            limit_concurrency=settings.max_connections,
            ws="none",
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=75,
        )
        listener.listen(_BACKLOG)
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        console.print(
            f"serving {model.path}, version {model.version}, on http://{shown}:{port} "
            f"(memory limit {f'{limit >> 20} MB' if limit else 'none'}; GET /docs describes it; "
            "SIGTERM or Ctrl-C stops it)",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        # uvicorn answers the accepted requests, then raises the signal again for its caller: this
        # is the intended end, not an error.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        # Threads that run Python code, such as one that loads a new version, delay the others by
        # this long, several times per request.
        sys.setswitchinterval(_SWITCH_SECONDS)
        uvicorn.Server(config).run(sockets=[listener])
    console.print("stopped; all accepted requests were answered", highlight=False)
    return 0


def _table_options(arguments: argparse.Namespace) -> TableOptions:
    """Return where rows are; reject options without effect."""
    from fleetx.serving.table_options import TableOptions, live_rows

    reader = None
    if arguments.servers is not None:
        reader = live_rows(
            arguments.servers,
            arguments.reader_keys,
            insecure=arguments.server_insecure,
            seconds=arguments.row_seconds or _ROW_SECONDS,
        )
    else:
        for option in ("reader_keys", "server_insecure", "row_seconds", "row_age_seconds"):
            given = getattr(arguments, option)
            if given is not None and given is not False:
                raise FormatError(
                    f"--{option}",
                    "is for rows on parameter servers: name these by --servers, or leave it out.",
                )
    age = arguments.row_age_seconds
    return TableOptions(
        reader=reader,
        cache_bytes=None if arguments.cache_mb is None else arguments.cache_mb << 20,
        max_age=_ROW_AGE_SECONDS if age is None else age,
    )


def _listen(host: str, port: int) -> socket.socket:
    """Return a bound socket, so that an error appears before a large model is loaded."""
    try:
        kind, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(kind, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except BaseException:
            listener.close()
            raise
    except socket.gaierror as error:
        raise OSError(f"--host {host!r} is not an address of this machine: {error}.") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise OSError(
                f"port {port} of {host} is in use: choose another by --port, or 0 for a free one."
            ) from error
        raise OSError(f"cannot listen on {host}, port {port}: {error.strerror}.") from error
    return listener
